from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.core import SAMPLE_RATE_HZ, Word
from voiceagent_tts.text.estimate import SpeechClock, typical_samples

SECOND = SAMPLE_RATE_HZ


@cache
def sound(seconds: float, level: int = 8000) -> bytes:
    """Noise with a fixed seed."""
    noise = np.random.default_rng(7).normal(size=round(seconds * SAMPLE_RATE_HZ))
    return (noise.clip(-3, 3) * level / 3).astype("<i2").tobytes()


def clock_of(pcm: bytes, step: int = 1920) -> SpeechClock:
    clock = SpeechClock()
    for start in range(0, len(pcm), 2 * step):
        clock.push(pcm[start : start + 2 * step])
    return clock


def test_the_typical_duration_of_a_word_follows_its_letters() -> None:
    """Seventeen letters per second, white space included; five syllables of Chinese."""
    assert typical_samples(Word("aaaa", 0, 4)) == pytest.approx(5 * SECOND / 17)
    assert typical_samples(Word("你好", 0, 2)) == pytest.approx(2 * SECOND / 5)


def test_silence_stops_the_clock() -> None:
    clock = clock_of(sound(0.5) + bytes(2 * 2 * SECOND) + sound(1.0))
    assert clock.sample_after(0, 0.4 * SECOND) == pytest.approx(0.4 * SECOND, abs=480)
    assert clock.sample_after(0, SECOND) == pytest.approx(3 * SECOND, abs=480)


def test_a_short_gap_is_speech() -> None:
    """A quiet part of up to 200 ms counts as speech; a longer one does not count at all."""
    for gap_s, end_s in ((0.2, 0.8), (0.21, 1.01)):
        clock = clock_of(sound(0.5) + bytes(2 * round(gap_s * SECOND)) + sound(1.0))
        assert clock.sample_after(0, 0.8 * SECOND) == pytest.approx(end_s * SECOND, abs=480)


def test_the_first_speech_is_as_loud_as_the_voice() -> None:
    """Noise 30 dB below the voice's loudest 10 ms is no speech; until there is some, the end."""
    clock = SpeechClock(voice_level=clock_of(sound(1.0)).level)
    clock.push(sound(0.5, level=400))
    assert clock.first_speech == SECOND // 2 > clock.first_sound
    clock.push(sound(0.5))
    assert clock.first_speech == SECOND // 2
    assert clock_of(sound(0.5, level=400)).first_speech < SECOND // 100, "no level is known"


def test_a_quiet_beginning_does_not_make_a_voice_slow() -> None:
    """The rate is measured from the first audible sample on; noise before it is not speech."""
    clock = clock_of(sound(1.0, level=250) + sound(4.0))
    clock.calibrate(3 * SECOND, typical_samples=2 * SECOND)
    assert clock.sample_after(3 * SECOND, SECOND) == pytest.approx(4 * SECOND, abs=480)


def test_the_rate_is_measured() -> None:
    """A voice that was half as fast as typical so far is expected to stay so."""
    clock = clock_of(sound(4.0))
    clock.calibrate(2 * SECOND, typical_samples=SECOND)
    assert clock.sample_after(2 * SECOND, SECOND / 2) == pytest.approx(3 * SECOND, abs=480)
    clock.calibrate(2 * SECOND, typical_samples=2 * SECOND)
    assert clock.sample_after(2 * SECOND, SECOND / 2) == pytest.approx(2.5 * SECOND, abs=480)


@given(st.integers(1, 5000), st.integers(0, 3 * SECOND), st.floats(0, 3 * SECOND))
def test_the_push_size_changes_no_estimate(step: int, sample: int, usual: float) -> None:
    """No estimate depends on how the audio was split into pushes, and none moves back in time."""
    pcm = sound(0.3, level=400) + bytes(SECOND) + sound(0.7)
    guess = clock_of(pcm, step).sample_after(sample, usual)
    assert guess >= sample
    assert guess == clock_of(pcm, len(pcm)).sample_after(sample, usual)
