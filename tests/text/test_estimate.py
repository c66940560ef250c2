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
    """A clock that has received `pcm`."""
    clock = SpeechClock()
    for start in range(0, len(pcm), 2 * step):
        clock.push(pcm[start : start + 2 * step])
    return clock


def test_the_typical_duration_of_a_word_follows_its_letters() -> None:
    """Seventeen letters per second, white space included; five syllables of Chinese."""
    assert typical_samples(Word("aaaa", 0, 4)) == pytest.approx(5 * SECOND / 17)
    assert typical_samples(Word("你好", 0, 2)) == pytest.approx(2 * SECOND / 5)


def test_the_clock_runs_with_the_audio() -> None:
    """Over steady sound, and after the end of the audio, the clock runs in real time."""
    clock = clock_of(sound(2.0))
    assert clock.made_samples == 2 * SECOND
    assert clock.sample_after(0, SECOND) == pytest.approx(SECOND, abs=480)
    assert clock.sample_after(SECOND, 3 * SECOND) == pytest.approx(4 * SECOND, abs=480)
    assert clock.sample_after(5 * SECOND, SECOND) == 6 * SECOND


def test_silence_stops_the_clock() -> None:
    """A pause delays the words after it by its length."""
    clock = clock_of(sound(0.5) + bytes(2 * 2 * SECOND) + sound(1.0))
    assert clock.sample_after(0, 0.4 * SECOND) == pytest.approx(0.4 * SECOND, abs=480)
    assert clock.sample_after(0, SECOND) == pytest.approx(3 * SECOND, abs=480)


def test_a_short_gap_is_speech() -> None:
    """A quiet part of up to 200 ms counts as speech; a longer one does not count at all."""
    for gap_s, end_s in ((0.2, 0.8), (0.21, 1.01)):
        clock = clock_of(sound(0.5) + bytes(2 * round(gap_s * SECOND)) + sound(1.0))
        assert clock.sample_after(0, 0.8 * SECOND) == pytest.approx(end_s * SECOND, abs=480)


def test_a_gap_counts_until_it_is_a_pause() -> None:
    """The clock is causal: a gap of 100 ms so far may be part of a word."""
    clock = clock_of(sound(0.5) + bytes(2 * SECOND // 10))
    assert clock.sample_after(0, 0.7 * SECOND) == pytest.approx(0.7 * SECOND, abs=480)
    clock.push(bytes(2 * SECOND))
    assert clock.sample_after(0, 0.7 * SECOND) == pytest.approx((1.6 + 0.2) * SECOND, abs=480)


def test_the_first_sound_is_known() -> None:
    """It is the first audible sample; until there is one, the end of the audio."""
    clock = SpeechClock()
    clock.push(bytes(2 * 1000))
    assert clock.first_sound == 1000
    clock.push(bytes(2 * 500) + sound(0.1))
    clock.push(sound(0.1))
    assert clock.first_sound == pytest.approx(1500, abs=5)


def test_the_first_speech_is_as_loud_as_the_voice() -> None:
    """Noise 30 dB below the voice's loudest 10 ms is no speech; until there is some, the end."""
    clock = SpeechClock(voice_level=clock_of(sound(1.0)).level)
    clock.push(sound(0.5, level=400))
    assert clock.first_speech == SECOND // 2 > clock.first_sound
    clock.push(sound(0.5))
    assert clock.first_speech == SECOND // 2
    assert clock_of(sound(0.5, level=400)).first_speech < SECOND // 100, "no level is known"


def test_speech_is_not_waited_for_without_end() -> None:
    """After three seconds a voice that is quieter than before is taken for speech."""
    clock = SpeechClock(voice_level=5_000)
    clock.push(sound(2.9, level=400))
    assert clock.first_speech == clock.made_samples
    clock.push(sound(0.2, level=400))
    assert clock.first_speech == clock.first_sound < SECOND // 100


def test_a_vowel_is_as_loud_as_the_voice() -> None:
    """A breath has no vowel: 20 dB below the voice's loudest 10 ms, or below the context's own."""
    level = clock_of(sound(1.0)).level
    for known in (level, 0.0):
        clock = SpeechClock(known)
        clock.push(sound(0.5) + sound(0.5, level=400))
        assert clock.was_loud_since(SECOND // 2 - 240)
        assert not clock.was_loud_since(SECOND // 2)
        clock.push(sound(0.1))
        assert clock.was_loud_since(SECOND)


@given(st.integers(1, 5000))
def test_the_push_size_changes_no_first_speech(step: int) -> None:
    """To the samples after the last whole 10 ms."""
    pcm = sound(0.31, level=400) + sound(0.3)
    clock = SpeechClock(voice_level=5_000)
    for start in range(0, len(pcm), 2 * step):
        clock.push(pcm[start : start + 2 * step])
    assert clock.first_speech == pytest.approx(0.31 * SECOND, abs=1)


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


def test_a_clock_is_not_learnt_from_one_short_word() -> None:
    """Less than half a second of typical speech does not change the rate."""
    clock = clock_of(sound(4.0))
    clock.calibrate(SECOND, typical_samples=SECOND / 10)
    assert clock.sample_after(SECOND, SECOND) == pytest.approx(2 * SECOND, abs=480)


@given(st.integers(1, 5000), st.integers(0, 3 * SECOND), st.floats(0, 3 * SECOND))
def test_the_push_size_changes_no_estimate(step: int, sample: int, usual: float) -> None:
    """No estimate depends on how the audio was split into pushes, and none moves back in time."""
    pcm = sound(0.3, level=400) + bytes(SECOND) + sound(0.7)
    guess = clock_of(pcm, step).sample_after(sample, usual)
    assert guess >= sample
    assert guess == clock_of(pcm, len(pcm)).sample_after(sample, usual)
