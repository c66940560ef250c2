"""Samples in other number formats: float32, mu-law and A-law.

Every function converts sample by sample, without state. The module needs only numpy, so the client
and the adapters may use it.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from voiceagent_tts.core import Encoding

_FULL_SCALE = 32_768  # a power of two, so PCM16 to float32 and back is exact
_MULAW_BIAS = 33  # makes every segment start at a power of two
_MULAW_CLIP = 8_191 - _MULAW_BIAS  # the last segment ends at 8,192


def pcm_to_float(pcm: bytes) -> npt.NDArray[np.float32]:
    """Turn PCM16 into [S] float32 in [-1, 1)."""
    return np.frombuffer(pcm, "<i2").astype(np.float32) * np.float32(1 / _FULL_SCALE)


def float_to_pcm(samples: npt.NDArray[np.floating]) -> bytes:
    """Turn [S] floats in [-1, 1] into PCM16; values outside are clipped."""
    scaled = np.rint(samples * _FULL_SCALE)
    return np.clip(scaled, -_FULL_SCALE, _FULL_SCALE - 1).astype("<i2").tobytes()


def encode(pcm: bytes, encoding: Encoding) -> bytes:
    """Turn PCM16 into `encoding`; for PCM16 itself `pcm` is returned unchanged."""
    match encoding:
        case "pcm_s16le":
            return pcm
        case "pcm_f32le":
            return pcm_to_float(pcm).astype("<f4").tobytes()
        case "pcm_mulaw":
            return _mulaw_codes()[np.frombuffer(pcm, "<u2")].tobytes()
        case "pcm_alaw":
            return _alaw_codes()[np.frombuffer(pcm, "<u2")].tobytes()


# G.711 divides magnitudes into eight segments, each twice as wide as the one before it, and each
# into sixteen steps. A code is sign (1 bit), segment (3), step (4), with some bits inverted for
# the line. Tables are indexed by the bits of the sample.
#
# Source: ITU-T G.711 (11/88), tables 1a/1b (A-law, 13 bits) and 2a/2b (mu-law, 14 bits).


@cache
def _mulaw_codes() -> npt.NDArray[np.uint8]:
    samples = _every_sample() >> 2  # 14 bits
    magnitude = np.minimum(np.abs(samples), _MULAW_CLIP) + _MULAW_BIAS
    segment = _bit_length(magnitude) - 6
    step = magnitude >> (segment + 1) & 0x0F
    inverted = np.where(samples < 0, 0x7F, 0xFF)
    return ((segment << 4 | step) ^ inverted).astype(np.uint8)


@cache
def _alaw_codes() -> npt.NDArray[np.uint8]:
    samples = _every_sample() >> 3  # 13 bits
    magnitude = np.where(samples < 0, -samples - 1, samples)
    segment = np.maximum(_bit_length(magnitude) - 5, 0)
    step = magnitude >> np.maximum(segment, 1) & 0x0F  # the first two segments have equal steps
    inverted = np.where(samples < 0, 0x55, 0xD5)
    return ((segment << 4 | step) ^ inverted).astype(np.uint8)


def _every_sample() -> npt.NDArray[np.int64]:
    return np.arange(1 << 16).astype(np.uint16).view(np.int16).astype(np.int64)


def _bit_length(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.frexp(values)[1].astype(np.int64)
