import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from voiceagent_tts.audio.pcm import encode, float_to_pcm, pcm_to_float

EVERY_SAMPLE = np.arange(-32_768, 32_768).astype("<i2").tobytes()


@pytest.fixture
def audioop():
    """Python's own G.711, in versions that have it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return pytest.importorskip("audioop", reason="Python 3.13 has no audioop")


@pytest.mark.parametrize(
    ("encoding", "reference"), [("pcm_mulaw", "lin2ulaw"), ("pcm_alaw", "lin2alaw")]
)
def test_g711_is_bit_exact(audioop, encoding, reference: str) -> None:
    assert encode(EVERY_SAMPLE, encoding) == getattr(audioop, reference)(EVERY_SAMPLE, 2)


@pytest.mark.parametrize(
    ("encoding", "sample", "code"),
    [
        ("pcm_mulaw", 0, 0xFF),
        ("pcm_mulaw", 32_767, 0x80),
        ("pcm_mulaw", -32_768, 0x00),
        ("pcm_alaw", 0, 0xD5),
        ("pcm_alaw", 32_767, 0xAA),
        ("pcm_alaw", -32_768, 0x2A),
    ],
)
def test_g711_ends_of_the_scale(encoding, sample: int, code: int) -> None:
    """Zero and full scale have the codes of G.711's tables; this needs no audioop."""
    assert encode(np.int16(sample).tobytes(), encoding) == bytes([code])


@pytest.mark.parametrize(
    ("encoding", "dtype", "scale"), [("pcm_s16le", "<i2", 1), ("pcm_f32le", "<f4", 32_768)]
)
def test_wide_encodings_lose_nothing(encoding, dtype: str, scale: int) -> None:
    """PCM16 is unchanged, and has its value of full scale in float32."""
    samples = np.frombuffer(encode(EVERY_SAMPLE, encoding), dtype)
    assert (samples * scale).astype("<i2").tobytes() == EVERY_SAMPLE


def test_float_scale() -> None:
    """Full scale is one: -32768 is -1.0, and every value is a sample divided by 32768."""
    samples = pcm_to_float(EVERY_SAMPLE)
    assert samples.dtype == np.float32
    assert samples[0] == -1.0
    np.testing.assert_array_equal(samples, np.arange(-32_768, 32_768) / 32_768)


@given(hnp.arrays(np.float32, st.integers(0, 50), elements=st.floats(-4, 4, width=32)))
def test_floats_are_rounded_and_clipped(samples: np.ndarray) -> None:
    pcm = np.frombuffer(float_to_pcm(samples), "<i2").astype(float)
    nearest = np.clip(samples.astype(float) * 32_768, -32_768, 32_767)
    assert np.all(np.abs(pcm - nearest) <= 0.5)
