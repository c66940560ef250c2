"""A context's audio as its client gets it: in the rate and encoding requested, cut into messages.

`DeliveredAudio` passes the 24 kHz PCM16 chunks of one context through the server's `AudioFilter`,
if it has one. `OutputStream` resamples and encodes them, in order. `MessageQueue` divides the bytes
into messages: the first bytes are sent at once; bytes that arrive before the next message are
merged, up to a maximum. Nothing here waits or does I/O.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from voiceagent_tts.core import MAX_MESSAGE_PCM_BYTES, SAMPLE_RATE_HZ, Encoding

if TYPE_CHECKING:
    from voiceagent_tts.audio.resample import Resampler

PcmFilter = Callable[[bytes, Callable[[bytes], None]], None]
"""Changes the next whole samples of one context and passes them, in order, to the function: at once
or in a later iteration of the event loop."""


class AudioFilter(Protocol):
    """Changes all audio before clients receive it, for example by adding a watermark."""

    @property
    def key_id(self) -> str:
        """Id of the key with which the change can be detected."""
        ...

    def start(self) -> PcmFilter:
        """Return the filter of one context."""
        ...


class DeliveredAudio:
    """One context's audio on its way to the client: filters it, and digests what was sent.

    Args:
        audio_filter: changes the audio; None for audio as the engine made it.
    """

    def __init__(self, audio_filter: AudioFilter | None) -> None:
        self._audio_filter = audio_filter
        self._filter: PcmFilter | None = None  # from the first audio on
        self._digest = hashlib.sha256()

    def filter(self, pcm: bytes, on_filtered: Callable[[bytes], None]) -> None:
        """Filter the next whole PCM16 samples at 24 kHz, as `PcmFilter` does."""
        if self._audio_filter is None:
            on_filtered(pcm)
            return
        if self._filter is None:
            self._filter = self._audio_filter.start()
        self._filter(pcm, on_filtered)

    def add_sent(self, data: bytes) -> None:
        """Add audio to the digest, as the client receives it."""
        self._digest.update(data)

    @property
    def sha256(self) -> str:
        """Hex digest of the audio that was sent so far."""
        return self._digest.hexdigest()

    @property
    def key_id(self) -> str | None:
        """Id of the filter's key."""
        return None if self._audio_filter is None else self._audio_filter.key_id


def _encode(pcm: bytes, encoding: Encoding) -> bytes:
    if encoding == "pcm_s16le":
        return pcm
    from voiceagent_tts.audio.pcm import encode  # here: most clients take PCM16

    return encode(pcm, encoding)


def _resampler_to(sample_rate_hz: int) -> "Resampler | None":
    if sample_rate_hz == SAMPLE_RATE_HZ:
        return None
    from voiceagent_tts.audio.resample import Resampler  # here: most clients take 24 kHz

    return Resampler(SAMPLE_RATE_HZ, sample_rate_hz)


class OutputStream:
    """Converts one context's 24 kHz PCM16 to `encoding` at `sample_rate_hz`.

    The bytes do not depend on how the PCM was cut into chunks. At 24 kHz there is no delay; at
    other rates the last milliseconds wait for the samples after them (see `Resampler`).
    """

    def __init__(self, encoding: Encoding, sample_rate_hz: int) -> None:
        self._encoding: Encoding = encoding
        self._resampler = _resampler_to(sample_rate_hz)

    def push(self, pcm: bytes) -> bytes:
        """Append whole samples; return the output so far. 24 kHz PCM16 is not copied."""
        if self._resampler is not None:
            pcm = self._resampler.push(np.frombuffer(pcm, "<i2")).astype("<i2").tobytes()
        return _encode(pcm, self._encoding)

    def finish(self) -> bytes:
        """Return the rest; call once, after the last chunk.

        The total output is `round(samples_in * sample_rate_hz / 24000)` samples.
        """
        if self._resampler is None:
            return b""
        return _encode(self._resampler.finish().astype("<i2").tobytes(), self._encoding)


class MessageQueue:
    """Queues whole samples and returns them in messages of whole samples, in order.

    The cost of `push` and `pop` depends on the bytes that they move, not on the queue's length.
    """

    def __init__(self) -> None:
        self.queued_bytes = 0  # pushed and not yet popped
        self._pieces: deque[memoryview] = deque()

    def push(self, data: bytes) -> None:
        """Queue whole samples without copying them."""
        if data:
            self._pieces.append(memoryview(data))
            self.queued_bytes += len(data)

    def pop(self) -> bytes | None:
        """Remove and return the next message, of up to 4,096 bytes; None if the queue is empty."""
        if not self._pieces:
            return None
        message = b"".join(self._pop_pieces(min(self.queued_bytes, MAX_MESSAGE_PCM_BYTES)))
        self.queued_bytes -= len(message)
        return message

    def _pop_pieces(self, size: int) -> list[memoryview]:
        taken: list[memoryview] = []
        while size:
            piece = self._pieces.popleft()
            if len(piece) > size:
                self._pieces.appendleft(piece[size:])
                piece = piece[:size]
            taken.append(piece)
            size -= len(piece)
        return taken
