import numpy as np
import pytest
from numpy.typing import NDArray

from voiceagent_tts.audio.stretch import TimeStretch
from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ

PITCH_HZ = 220


def tone(seconds: float) -> NDArray[np.int16]:
    time_s = np.arange(round(seconds * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    return (8000 * np.sin(2 * np.pi * PITCH_HZ * time_s)).astype(np.int16)


def stretch(samples: NDArray[np.int16], speed: float, chunk: int) -> NDArray[np.int16]:
    stretcher = TimeStretch(speed)
    pieces = [
        stretcher.push(samples[start : start + chunk].tobytes())
        for start in range(0, len(samples), chunk)
    ]
    return np.frombuffer(b"".join([*pieces, stretcher.finish()]), "<i2")


@pytest.mark.parametrize("speed", [0.25, 0.4, 0.5, 0.8, 1.25, 2.0, 4.0])
def test_time_changes_and_pitch_stays(speed: float) -> None:
    out = stretch(tone(10.0), speed, FRAME_SAMPLES)
    assert len(out) == pytest.approx(10.0 * SAMPLE_RATE_HZ / speed, rel=0.01)
    spectrum = np.abs(np.fft.rfft(out[: 2 * SAMPLE_RATE_HZ] * np.hanning(2 * SAMPLE_RATE_HZ)))
    assert np.argmax(spectrum) / 2 == pytest.approx(PITCH_HZ, abs=2)


def test_chunks_do_not_matter() -> None:
    samples = tone(1.0)
    whole = stretch(samples, 1.25, len(samples))
    assert np.array_equal(stretch(samples, 1.25, 700), whole)


@pytest.mark.parametrize("speed", [0.25, 0.5, 1.25, 4.0])
@pytest.mark.parametrize("chunk", [700, 2_000, 24_000, 100_000])
def test_a_long_chunk_is_not_held(speed: float, chunk: int) -> None:
    """However long the chunks are, less than `HELD_SAMPLES` of the input are not in the output."""
    stretcher = TimeStretch(speed)
    out_samples = 0
    for fed in range(chunk, 200_001, chunk):
        out_samples += len(stretcher.push(tone(chunk / SAMPLE_RATE_HZ).tobytes())) // 2
        assert fed - out_samples * speed <= TimeStretch.HELD_SAMPLES
