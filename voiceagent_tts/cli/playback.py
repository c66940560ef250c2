"""Play audio on this machine's loudspeaker (package `sounddevice`, extra `agents`)."""

import asyncio
from typing import Any

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import InvalidRequestError

_WRITE_BYTES = SAMPLE_RATE_HZ * BYTES_PER_SAMPLE // 10  # Ctrl-C is noticed between writes


class Loudspeaker:
    """Plays PCM16 mono at 24 kHz."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    @classmethod
    def find(cls, *, is_required: bool) -> "Loudspeaker | None":
        """Return the default output device, or None if there is none and it is not required.

        Raises:
            InvalidRequestError: a device is required but missing; the message gives the reason.
        """
        try:
            import sounddevice

            stream = sounddevice.RawOutputStream(SAMPLE_RATE_HZ, channels=1, dtype="int16")
            stream.start()
        # sounddevice raises OSError where PortAudio is missing and its own error without a device.
        except Exception as error:
            if not is_required:
                return None
            raise InvalidRequestError(
                f"cannot play audio on this machine ({error}); install the extra `agents` and "
                "PortAudio "
                "(apt-get install libportaudio2), or write a file with --output"
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
