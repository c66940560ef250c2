"""A context's audio in the rate and encoding that its client requested.

Takes the 24 kHz PCM16 chunks of one context, in order, and returns encoded bytes. This module knows
no messages, no files and no clock.
"""

import numpy as np

from voiceagent_tts.audio.pcm import encode
from voiceagent_tts.audio.resample import Resampler
from voiceagent_tts.core import SAMPLE_RATE_HZ, Encoding


class OutputStream:
    """Converts one context's 24 kHz PCM16 to `encoding` at `sample_rate_hz`.

    The bytes do not depend on how the PCM was cut into chunks. At 24 kHz there is no delay; at
    other rates the last milliseconds wait for the samples after them (see `Resampler`).

    Args:
        encoding: number format of the output samples.
        sample_rate_hz: rate of the output samples.
    """

    def __init__(self, encoding: Encoding, sample_rate_hz: int) -> None:
        self.encoding: Encoding = encoding
        self.sample_rate_hz = sample_rate_hz
        self._resampler = (
            None if sample_rate_hz == SAMPLE_RATE_HZ else Resampler(SAMPLE_RATE_HZ, sample_rate_hz)
        )

    def push(self, pcm: bytes) -> bytes:
        """Append whole samples; return the output so far. 24 kHz PCM16 is not copied."""
        if self._resampler is not None:
            pcm = self._resampler.push(np.frombuffer(pcm, "<i2")).astype("<i2").tobytes()
        return encode(pcm, self.encoding)

    def finish(self) -> bytes:
        """Return the rest; call once, after the last chunk.

        The total output is `round(samples_in * sample_rate_hz / 24000)` samples.
        """
        if self._resampler is None:
            return b""
        return encode(self._resampler.finish().astype("<i2").tobytes(), self.encoding)
