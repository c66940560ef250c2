"""Microphone and loudspeaker of this machine, through PortAudio (package `sounddevice`).

Devices with other sample rates than the agent's are resampled. With echo cancellation, WebRTC's
audio processing (from LiveKit's package) removes the loudspeaker's sound from the microphone's.
This module knows no words and no conversation.
"""

import asyncio
import collections
import math
from collections.abc import AsyncIterator
from typing import Any, Literal

import numpy as np
import soxr

from agents.playback import Playback
from agents.speech_detector import MICROPHONE_RATE_HZ
from livekit import rtc
from voiceagent_tts.audio.levels import leading_silence_samples
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ

FRAME_S = 0.01
"""Length of one block of audio, and of what WebRTC's audio processing takes at a time."""
_SILENT_S = 2.0
"""A microphone that delivers nothing for so long is gone."""
_LATENCY_S = 0.04
"""Requested latency of each device: as short as sound servers keep up with."""
_MAX_DELAY_MS = 500
"""Longest delay from loudspeaker to microphone that WebRTC's audio processing accepts
(`AudioProcessing::set_stream_delay_ms`). Devices of a busy machine report longer ones, and negative
ones."""
_LEARNING_S = 3.0
"""Length of the loudspeaker's sound from which the echo canceller learns before the user can be
heard beside it. LiveKit Agents waits as long (`aec_warmup_duration`)."""


class SoundError(Exception):
    """A device cannot be used; the message says why, and what to try."""


class SoundCard:
    """An open microphone and loudspeaker; use it as an async context manager.

    Args:
        playback: what the loudspeaker plays.
        microphone: name or number of the input device; None for the default.
        loudspeaker: name or number of the output device; None for the default.
        cancels_echo: whether to remove the loudspeaker's sound from the microphone's.

    Attributes:
        notes: sentences about the devices that the user should read.

    Raises:
        SoundError: a device is missing, or cannot be opened.
    """

    def __init__(
        self,
        playback: Playback,
        *,
        microphone: str | int | None = None,
        loudspeaker: str | int | None = None,
        cancels_echo: bool = False,
    ) -> None:
        self.notes: list[str] = []
        self._playback = playback
        self._portaudio = load_portaudio()
        self._input = self._choose("microphone", microphone, MICROPHONE_RATE_HZ)
        self._output = self._choose("loudspeaker", loudspeaker, SAMPLE_RATE_HZ)
        self._canceller = _EchoCanceller() if cancels_echo else None
        self._frames: asyncio.Queue[bytes | SoundError] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._streams: list[Any] = []
        self._is_closing = False
        self._from_microphone = _Resampler(self._input.rate_hz, MICROPHONE_RATE_HZ)
        self._to_loudspeaker = _Resampler(SAMPLE_RATE_HZ, self._output.rate_hz)
        self._to_play = bytearray()  # resampled audio for the loudspeaker

    async def __aenter__(self) -> "SoundCard":
        """Start both devices.

        Raises:
            SoundError: a device cannot be opened.
        """
        error_type = self._portaudio.PortAudioError
        for device, kind, callback in (
            (self._input, self._portaudio.RawInputStream, self._record),
            (self._output, self._portaudio.RawOutputStream, self._play),
        ):
            try:
                stream = kind(
                    samplerate=device.rate_hz,
                    blocksize=round(device.rate_hz * FRAME_S),
                    device=device.number,
                    channels=1,
                    dtype="int16",
                    latency=_LATENCY_S,
                    callback=callback,
                    finished_callback=lambda name=device.kind: self._report_end(name),
                )
                stream.start()
            except error_type as error:
                self._close()
                raise SoundError(
                    f"the {device.kind} cannot be opened ({_reason(error)}); close other programs "
                    "that use it, or choose another one"
                ) from error
            self._streams.append(stream)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop both devices."""
        self._close()

    async def frames(self) -> AsyncIterator[bytes]:
        """The microphone's audio as it comes, PCM16 at `MICROPHONE_RATE_HZ`.

        Raises:
            SoundError: a device was unplugged, or has stopped.
        """
        while True:
            try:
                async with asyncio.timeout(_SILENT_S):
                    frame = await self._frames.get()
            except TimeoutError:
                raise SoundError(_lost("microphone")) from None
            if isinstance(frame, SoundError):
                raise frame
            if self._canceller is not None:
                frame = self._canceller.clean(frame)
            if frame:
                yield frame

    def _choose(self, kind: "_Kind", name: str | int | None, rate_hz: int) -> "_Device":
        """Find a device, and a sample rate that it has.

        Raises:
            SoundError: there is no such device.
        """
        found = _find(self._portaudio, kind, name)
        check = getattr(self._portaudio, f"check_{_DIRECTIONS[kind]}_settings")
        try:
            check(device=found["index"], channels=1, dtype="int16", samplerate=rate_hz)
        except self._portaudio.PortAudioError:
            rate_hz = round(found["default_samplerate"])
            verb = "records" if kind == "microphone" else "plays"
            self.notes.append(f"the {kind} {verb} at {rate_hz:,} Hz; its audio is resampled")
        return _Device(kind, found["index"], rate_hz)

    # Called by PortAudio's threads.

    def _record(self, data: Any, samples: int, time: Any, status: Any) -> None:
        pcm = self._from_microphone.convert(bytes(data))
        if self._canceller is not None:
            self._canceller.delay_s["microphone"] = time.currentTime - time.inputBufferAdcTime
        self._loop.call_soon_threadsafe(self._frames.put_nowait, pcm)

    def _play(self, data: Any, samples: int, time: Any, status: Any) -> None:
        latency_s = max(0.0, time.outputBufferDacTime - time.currentTime)
        block = round(SAMPLE_RATE_HZ * FRAME_S)
        while len(self._to_play) < len(data):
            pcm = self._playback.read(block, latency_s)
            if self._canceller is not None:
                self._canceller.delay_s["loudspeaker"] = latency_s
                self._loop.call_soon_threadsafe(self._canceller.learn, pcm)
            self._to_play += self._to_loudspeaker.convert(pcm)
        data[:] = self._to_play[: len(data)]
        del self._to_play[: len(data)]

    def _report_end(self, kind: "_Kind") -> None:
        if not self._is_closing:
            self._loop.call_soon_threadsafe(self._frames.put_nowait, SoundError(_lost(kind)))

    def _close(self) -> None:
        self._is_closing = True
        for stream in self._streams:
            stream.close(ignore_errors=True)
        self._streams.clear()


def check_devices() -> None:
    """Find the default microphone and loudspeaker.

    Raises:
        SoundError: there is none, or PortAudio is missing.
    """
    portaudio = load_portaudio()
    for kind in _DIRECTIONS:
        _find(portaudio, kind, None)


def list_devices() -> str:
    """A table of all devices.

    Raises:
        SoundError: PortAudio is missing.
    """
    return str(load_portaudio().query_devices()) or "this machine has no sound devices"


_Kind = Literal["microphone", "loudspeaker"]

_DIRECTIONS: dict[_Kind, Literal["input", "output"]] = {
    "microphone": "input",
    "loudspeaker": "output",
}

_Device = collections.namedtuple("_Device", ["kind", "number", "rate_hz"])


def load_portaudio() -> Any:
    """Return the module that finds and opens devices.

    Raises:
        SoundError: PortAudio is missing.
    """
    try:
        import sounddevice
    except OSError as error:
        raise SoundError(f"{error}; try `apt-get install libportaudio2`") from error
    return sounddevice


def _find(portaudio: Any, kind: _Kind, name: str | int | None) -> Any:
    try:
        return portaudio.query_devices(name, _DIRECTIONS[kind])
    except (ValueError, portaudio.PortAudioError) as error:
        problem = f"no {kind} was found" if name is None else f"there is no {kind} {name!r}"
        raise SoundError(
            f"{problem}; connect one, or choose one of those that --list-devices shows"
        ) from error


def _lost(kind: _Kind) -> str:
    return f"the {kind} has stopped, as if it were unplugged; connect it and start again"


def _reason(error: Exception) -> str:
    return str(error).removeprefix("Error opening RawInputStream: ").split(" [")[0]


class _Resampler:
    """Converts PCM16 from one sample rate to another, piece by piece."""

    def __init__(self, from_hz: int, to_hz: int) -> None:
        self._stream = (
            None if from_hz == to_hz else soxr.ResampleStream(from_hz, to_hz, 1, dtype="int16")
        )

    def convert(self, pcm: bytes) -> bytes:
        """The samples that `pcm` completes."""
        if self._stream is None:
            return pcm
        return self._stream.resample_chunk(np.frombuffer(pcm, "<i2")).tobytes()


class _EchoCanceller:
    """Removes the loudspeaker's sound from the microphone's, with WebRTC's audio processing.

    It has to hear the echo before it can remove it. Until the loudspeaker has played `_LEARNING_S`
    of sound, the microphone is therefore silent while the loudspeaker is not: the agent would take
    the beginning of its own voice for the user's.

    Attributes:
        delay_s: latency of each device.
    """

    def __init__(self) -> None:
        self.delay_s: dict[_Kind, float] = {"microphone": 0.0, "loudspeaker": 0.0}
        self._processing = rtc.AudioProcessingModule(
            echo_cancellation=True, noise_suppression=True, high_pass_filter=True
        )
        self._waiting = b""
        self._learned_s = 0.0
        self._silent_s = math.inf  # length of the loudspeaker's silence so far

    def learn(self, pcm: bytes) -> None:
        """Receive 10 ms that the loudspeaker will play, PCM16 at 24 kHz."""
        samples = len(pcm) // BYTES_PER_SAMPLE
        frame = rtc.AudioFrame(pcm, SAMPLE_RATE_HZ, 1, samples)
        self._processing.process_reverse_stream(frame)
        if leading_silence_samples(pcm) < samples:
            self._learned_s += FRAME_S
            self._silent_s = 0.0
        else:
            self._silent_s += FRAME_S

    def clean(self, pcm: bytes) -> bytes:
        """The microphone's next audio without the echo; holds back less than 10 ms."""
        size = round(MICROPHONE_RATE_HZ * FRAME_S) * BYTES_PER_SAMPLE
        self._waiting += pcm
        clean = b""
        delay_ms = round(1000 * sum(self.delay_s.values()))
        self._processing.set_stream_delay_ms(min(max(0, delay_ms), _MAX_DELAY_MS))
        while len(self._waiting) >= size:
            piece, self._waiting = self._waiting[:size], self._waiting[size:]
            frame = rtc.AudioFrame(piece, MICROPHONE_RATE_HZ, 1, size // BYTES_PER_SAMPLE)
            self._processing.process_stream(frame)
            clean += bytes(size) if self._is_learning else bytes(frame.data)
        return clean

    @property
    def _is_learning(self) -> bool:
        """Whether an echo may arrive that cannot be removed yet."""
        return self._learned_s < _LEARNING_S and self._silent_s * 1000 < _MAX_DELAY_MS
