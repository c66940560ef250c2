from typing import get_args

import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.examples import examples
from voiceagent_tts.audio.resample import REACH, Resampler
from voiceagent_tts.protocol.messages import SampleRate

RATES = [
    *((24_000, target_hz) for target_hz in get_args(SampleRate) if target_hz != 24_000),
    (22_050, 24_000),
]


def resample(samples: np.ndarray, source_hz: int, target_hz: int) -> np.ndarray:
    resampler = Resampler(source_hz, target_hz)
    return np.concatenate((resampler.push(samples), resampler.finish()))


def tone(frequency_hz: float, source_hz: int) -> np.ndarray:
    time_s = np.arange(source_hz) / source_hz
    return (20_000 * np.sin(2 * np.pi * frequency_hz * time_s)).astype(np.int16)


def level_db(samples: np.ndarray) -> float:
    """Level over the middle of a second, relative to `tone`."""
    middle = samples[len(samples) // 4 : -len(samples) // 4].astype(float)
    return 20 * np.log10(np.sqrt(np.mean(middle**2)) / (20_000 / np.sqrt(2)) + 1e-9)


@pytest.mark.parametrize(("source_hz", "target_hz"), RATES)
def test_agrees_with_soxr(source_hz: int, target_hz: int) -> None:
    """Below 80 % of the lower Nyquist rate the samples equal soxr's best, but for rounding."""
    rng = np.random.default_rng(1)
    spectrum = np.fft.rfft(rng.standard_normal(source_hz))
    spectrum[int(0.4 * min(source_hz, target_hz)) :] = 0
    noise = np.fft.irfft(spectrum, source_hz)
    samples = np.rint(noise / np.abs(noise).max() * 20_000).astype(np.int16)

    ours = resample(samples, source_hz, target_hz).astype(float)
    theirs = soxr.resample(samples.astype(float), source_hz, target_hz, quality="VHQ")

    assert len(ours) == len(theirs)
    difference = (ours - theirs)[500:-500]
    assert np.sqrt(np.mean(difference**2)) < 0.4  # rounding alone is 0.29
    assert np.abs(difference).max() < 2


@pytest.mark.parametrize(
    ("target_hz", "frequency_hz"),
    [(8_000, 4_300), (8_000, 7_900), (16_000, 8_300), (16_000, 11_900)],
)
def test_there_is_no_aliasing(target_hz: int, frequency_hz: int) -> None:
    assert level_db(resample(tone(frequency_hz, 24_000), 24_000, target_hz)) < -80


@pytest.mark.parametrize(("target_hz", "frequency_hz"), [(8_000, 3_400), (16_000, 6_800)])
def test_the_pass_band_is_flat(target_hz: int, frequency_hz: int) -> None:
    """The telephone band, 3.4 kHz at 8 kHz, passes unchanged."""
    assert abs(level_db(resample(tone(frequency_hz, 24_000), 24_000, target_hz))) < 0.05


@pytest.mark.parametrize(("source_hz", "target_hz"), RATES)
def test_the_delay_is_the_filters_reach(source_hz: int, target_hz: int) -> None:
    """At any time at most the filter's reach, 4 ms at 8 kHz, is not in the output yet."""
    resampler, chunk, received, produced = Resampler(source_hz, target_hz), 240, 0, 0
    held_s = REACH / min(source_hz, target_hz) + 1 / target_hz
    for _ in range(50):
        produced += len(resampler.push(np.zeros(chunk, np.int16)))
        received += chunk
        assert received / source_hz - produced / target_hz <= held_s


@pytest.mark.parametrize(("source_hz", "target_hz"), RATES)
@given(lengths=st.lists(st.integers(0, 700), max_size=8))
@settings(max_examples=examples(60), deadline=None)
def test_chunks_do_not_matter(source_hz: int, target_hz: int, lengths: list[int]) -> None:
    samples = np.random.default_rng(sum(lengths)).integers(-32_768, 32_768, sum(lengths))
    samples = samples.astype(np.int16)
    resampler = Resampler(source_hz, target_hz)
    pieces = [resampler.push(piece) for piece in np.split(samples, np.cumsum(lengths))]
    streamed = np.concatenate((*pieces, resampler.finish()))

    assert len(streamed) == round(len(samples) * target_hz / source_hz)
    np.testing.assert_array_equal(streamed, resample(samples, source_hz, target_hz))


@pytest.mark.parametrize(("source_hz", "target_hz"), RATES)
def test_full_scale_is_clipped(source_hz: int, target_hz: int) -> None:
    square = np.repeat(np.tile([32_767, -32_768], 20), 100).astype(np.int16)
    resampled = resample(square, source_hz, target_hz)
    assert (resampled.max(), resampled.min()) == (32_767, -32_768)
    per_half_wave = len(resampled) / 40
    middles = ((np.arange(40) + 0.5) * per_half_wave).astype(int)
    assert np.all(np.sign(resampled[middles]) == np.tile([1, -1], 20))


@pytest.mark.parametrize(("source_hz", "target_hz"), RATES)
def test_the_clock_is_not_shifted(source_hz: int, target_hz: int) -> None:
    """A click keeps its time, so word times are valid at every rate."""
    click = np.zeros(source_hz, np.int16)
    click[source_hz // 2] = 30_000
    assert np.argmax(resample(click, source_hz, target_hz)) == target_hz // 2
