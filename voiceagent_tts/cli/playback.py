"""Play audio on this machine's loudspeaker (package `sounddevice`, library PortAudio)."""

import asyncio
from typing import Any

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import InvalidRequestError

_WRITE_BYTES = SAMPLE_RATE_HZ * BYTES_PER_SAMPLE // 10  # Ctrl-C is noticed between writes


def output_device() -> str:
    """Return the name of the default output device."""
    try:
        import sounddevice
    except OSError:
        raise InvalidRequestError(
            "no loudspeaker: the library PortAudio is missing; apt-get install libportaudio2, or "
            "write a file with --output say.wav"
        ) from None
    if not any(device["max_output_channels"] for device in sounddevice.query_devices()):
        raise InvalidRequestError(
            "this machine has no output device (PortAudio works); connect one, or write a file "
            "with --output say.wav"
        )
    try:
        return sounddevice.query_devices(kind="output")["name"]
    except sounddevice.PortAudioError:
        raise InvalidRequestError(
            "no output device is the default; select one in the system's sound settings, or write "
            "a file with --output say.wav"
        ) from None


class Loudspeaker:
    """Plays PCM16 mono at 24 kHz."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    @classmethod
    def open(cls) -> "Loudspeaker":
        """Open the default output device."""
        output_device()
        import sounddevice

        try:
            stream = sounddevice.RawOutputStream(SAMPLE_RATE_HZ, channels=1, dtype="int16")
            stream.start()
        except sounddevice.PortAudioError as error:
            raise InvalidRequestError(
                f"the output device cannot be opened ({error}); write a file with --output say.wav"
            ) from error
        return cls(stream)

    async def play(self, pcm: bytes) -> None:
        """Queue `pcm`; wait while the device's buffer is full."""
        for start in range(0, len(pcm), _WRITE_BYTES):
            await asyncio.to_thread(self._stream.write, pcm[start : start + _WRITE_BYTES])

    async def finish(self) -> None:
        """Wait until all audio has been played, and close the device."""
        await asyncio.to_thread(self._stream.stop)
        self._stream.close()
