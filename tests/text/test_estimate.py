from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.texts import any_text, chunked
from voiceagent_tts.core import SAMPLE_RATE_HZ, Word
from voiceagent_tts.text.estimate import Pace, usual_samples
from voiceagent_tts.text.words import GrowingWords, split_words

SECOND = SAMPLE_RATE_HZ


@cache
def sound(seconds: float, level: int = 8000) -> bytes:
    """Noise of a fixed seed."""
    noise = np.random.default_rng(7).normal(size=round(seconds * SAMPLE_RATE_HZ))
    return (noise.clip(-3, 3) * level / 3).astype("<i2").tobytes()


def heard(pcm: bytes, step: int = 1920) -> Pace:
    """A pace that has heard `pcm`."""
    pace = Pace()
    for start in range(0, len(pcm), 2 * step):
        pace.push(pcm[start : start + 2 * step])
    return pace


def test_a_word_usually_takes_as_long_as_its_letters() -> None:
    """Seventeen letters a second, white space included; five syllables of Chinese."""
    assert usual_samples(Word("aaaa", 0, 4)) == pytest.approx(5 * SECOND / 17)
    assert usual_samples(Word("你好", 0, 2)) == pytest.approx(2 * SECOND / 5)


def test_time_goes_on_with_the_sound() -> None:
    """Over even sound a length is that length, and it goes on where no sound has been made yet."""
    pace = heard(sound(2.0))
    assert pace.made_samples == 2 * SECOND
    assert pace.after(0, SECOND) == pytest.approx(SECOND, abs=480)
    assert pace.after(SECOND, 3 * SECOND) == pytest.approx(4 * SECOND, abs=480)
    assert pace.after(5 * SECOND, SECOND) == 6 * SECOND


def test_silence_stops_the_clock() -> None:
    """A pause of the voice moves what comes behind it by its length."""
    pace = heard(sound(0.5) + bytes(2 * 2 * SECOND) + sound(1.0))
    assert pace.after(0, 0.4 * SECOND) == pytest.approx(0.4 * SECOND, abs=480)
    assert pace.after(0, SECOND) == pytest.approx(3 * SECOND, abs=480)


def test_a_short_gap_is_speech() -> None:
    """Quiet of up to 200 ms inside speech counts; of a longer one, nothing does."""
    for gap_s, end_s in ((0.2, 0.8), (0.21, 1.01)):
        pace = heard(sound(0.5) + bytes(2 * round(gap_s * SECOND)) + sound(1.0))
        assert pace.after(0, 0.8 * SECOND) == pytest.approx(end_s * SECOND, abs=480)


def test_a_gap_counts_until_it_is_a_pause() -> None:
    """Nothing looks ahead: what has been quiet for 100 ms may be a part of a word."""
    pace = heard(sound(0.5) + bytes(2 * SECOND // 10))
    assert pace.after(0, 0.7 * SECOND) == pytest.approx(0.7 * SECOND, abs=480)
    pace.push(bytes(2 * SECOND))
    assert pace.after(0, 0.7 * SECOND) == pytest.approx((1.6 + 0.2) * SECOND, abs=480)


def test_the_first_sound_is_known() -> None:
    """It is where something can be heard; until then, where the sound ends."""
    pace = Pace()
    pace.push(bytes(2 * 1000))
    assert pace.first_sound == 1000
    pace.push(bytes(2 * 500) + sound(0.1))
    pace.push(sound(0.1))
    assert pace.first_sound == pytest.approx(1500, abs=5)


def test_a_hushed_beginning_is_no_slow_voice() -> None:
    """A pace is learnt from the first audible sound on; the noise before it is not speech."""
    pace = heard(sound(1.0, level=250) + sound(4.0))
    pace.learn(3 * SECOND, usual_samples=2 * SECOND)
    assert pace.after(3 * SECOND, SECOND) == pytest.approx(4 * SECOND, abs=480)


def test_a_pace_is_learnt() -> None:
    """A voice that was half as fast so far is expected to go on like that."""
    pace = heard(sound(4.0))
    pace.learn(2 * SECOND, usual_samples=SECOND)
    assert pace.after(2 * SECOND, SECOND / 2) == pytest.approx(3 * SECOND, abs=480)
    pace.learn(2 * SECOND, usual_samples=2 * SECOND)
    assert pace.after(2 * SECOND, SECOND / 2) == pytest.approx(2.5 * SECOND, abs=480)


def test_a_pace_is_not_learnt_from_one_short_word() -> None:
    """What is known of the first moments says nothing of the voice."""
    pace = heard(sound(4.0))
    pace.learn(SECOND, usual_samples=SECOND / 10)
    assert pace.after(SECOND, SECOND) == pytest.approx(2 * SECOND, abs=480)


@given(st.integers(1, 5000), st.integers(0, 3 * SECOND), st.floats(0, 3 * SECOND))
def test_however_the_sound_comes(step: int, sample: int, usual: float) -> None:
    """The cut of the sound into pieces changes no guess, and none goes back in time."""
    pcm = sound(0.3, level=400) + bytes(SECOND) + sound(0.7)
    guess = heard(pcm, step).after(sample, usual)
    assert guess >= sample
    assert guess == heard(pcm, len(pcm)).after(sample, usual)


@given(any_text().flatmap(lambda text: st.tuples(st.just(text), chunked(text))))
def test_words_of_a_growing_text_are_those_of_the_whole(case: tuple[str, list[str]]) -> None:
    """However a text arrives, its words are those that it has as a whole."""
    text, deltas = case
    growing = GrowingWords()
    words = [word for delta in deltas for word in growing.push(delta)]
    assert words + growing.finish() == split_words(text)


def test_text_behind_the_end_of_a_part_begins_a_word() -> None:
    """After `finish` the offsets go on, and a word that was ended does not grow."""
    growing = GrowingWords()
    words = growing.push("one two") + growing.finish() + growing.push("three four")
    assert words + growing.finish() == [
        Word("one", 0, 3), Word("two", 4, 7), Word("three", 7, 12), Word("four", 13, 17),
    ]  # fmt: skip


def test_a_long_part_that_ends_within_a_word_cuts_none() -> None:
    """Thousands of characters at once, cut anywhere, give the words of the whole text."""
    text = "This sentence is one of many that follow each other. " * 60
    growing = GrowingWords()
    grown = growing.push(text[:1492]) + growing.push(text[1492:]) + growing.finish()
    assert text[1491:1493].isalpha()
    assert grown == split_words(text)
