"""A context's audio as its client asked for it: rate and encoding.

In go the 24 kHz PCM16 chunks of one context, in order; out come encoded bytes. The room knows
nothing of messages, files and clocks.
"""

import numpy as np

from voiceagent_tts.audio.pcm import encode
from voiceagent_tts.audio.resample import Resampler
from voiceagent_tts.core import ENCODED_SAMPLE_BYTES, SAMPLE_RATE_HZ, Encoding


class OutputStream:
    """One context's way from 24 kHz PCM16 to `encoding` at `sample_rate_hz`.

    The bytes do not depend on how the PCM was cut into chunks. At 24 kHz nothing is held back;
    at other rates the last milliseconds wait for what follows (see `Resampler`).

    Args:
        encoding: number format of the samples that come out.
        sample_rate_hz: their rate.
    """

    def __init__(self, encoding: Encoding, sample_rate_hz: int) -> None:
        self.encoding: Encoding = encoding
        self.sample_rate_hz = sample_rate_hz
        self._resampler = (
            None if sample_rate_hz == SAMPLE_RATE_HZ else Resampler(SAMPLE_RATE_HZ, sample_rate_hz)
        )

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample that comes out."""
        return ENCODED_SAMPLE_BYTES[self.encoding]

    def push(self, pcm: bytes) -> bytes:
        """Take whole samples and return what is known by now; 24 kHz PCM16 is not copied."""
        if self._resampler is not None:
            pcm = self._resampler.push(np.frombuffer(pcm, "<i2")).astype("<i2").tobytes()
        return encode(pcm, self.encoding)

    def finish(self) -> bytes:
        """Return the rest; call once, after the last chunk.

        All in all `round(samples_in * sample_rate_hz / 24000)` samples have come out.
        """
        if self._resampler is None:
            return b""
        return encode(self._resampler.finish().astype("<i2").tobytes(), self.encoding)
