import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.audio.levels import AUDIBLE_LEVEL, leading_silence_samples, onsets
from voiceagent_tts.core import ms_to_samples


def silence(ms: float) -> np.ndarray:
    return np.zeros(ms_to_samples(ms), np.int16)


def sound(ms: float, amplitude: float = 8_000) -> np.ndarray:
    """`ms` milliseconds of a 200 Hz tone that begins at its peak."""
    time_s = np.arange(ms_to_samples(ms)) / 24_000
    return (amplitude * np.cos(2 * np.pi * 200 * time_s)).astype(np.int16)


def pcm(*parts: np.ndarray) -> bytes:
    return np.concatenate(parts).tobytes()


@given(st.integers(0, 5_000), st.integers(AUDIBLE_LEVEL, 32_768))
def test_leading_silence_ends_at_the_first_audible_sample(quiet: int, level: int) -> None:
    """Samples below the level are silence; the first at the level, of either sign, ends it."""
    hum = np.full(quiet, AUDIBLE_LEVEL - 1, np.int16)
    click = np.array([-level, 0, 0], np.int16)
    assert leading_silence_samples(pcm(hum, click)) == quiet


@given(st.lists(st.tuples(st.integers(120, 600), st.integers(60, 500)), min_size=1, max_size=6))
def test_onsets_are_where_words_begin(words: list[tuple[int, int]]) -> None:
    parts, starts, position_ms = [], [], 0
    for pause_ms, sound_ms in words:
        parts += [silence(pause_ms), sound(sound_ms)]
        starts.append(position_ms + pause_ms)
        position_ms += pause_ms + sound_ms
    early = np.array([ms_to_samples(ms) for ms in starts]) - onsets(pcm(*parts))
    assert np.all((early >= 0) & (early < ms_to_samples(5)))


@pytest.mark.parametrize(("closure_ms", "count"), [(60, 1), (95, 1), (100, 2), (150, 2)])
def test_short_silences_are_inside_a_word(closure_ms: int, count: int) -> None:
    assert len(onsets(pcm(sound(200), silence(closure_ms), sound(200)))) == count


def test_a_noise_floor_is_not_sound() -> None:
    """Noise 45 dB below the voice fills the pauses without hiding the onsets."""
    audio = np.concatenate((silence(200), sound(300), silence(200), sound(300)))
    noise = np.random.default_rng(5).normal(0, 32, len(audio))
    assert onsets((audio + noise).astype(np.int16).tobytes()) == [4_800, ms_to_samples(700)]
