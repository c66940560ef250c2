import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.texts import any_text, chunked
from voiceagent_tts.alignment.estimate import Estimator
from voiceagent_tts.core import SAMPLE_RATE_HZ, Word, WordTimestamp
from voiceagent_tts.text.words import GrowingWords, split_words

FRAME = SAMPLE_RATE_HZ // 10


def sound(seconds: float, level: int = 8000) -> bytes:
    """Noise of a fixed seed."""
    noise = np.random.default_rng(7).normal(size=round(seconds * SAMPLE_RATE_HZ))
    return (noise.clip(-3, 3) * level / 3).astype("<i2").tobytes()


def run(words: list[Word], pcm: bytes, frame: int = FRAME) -> list[WordTimestamp]:
    """All words of an estimator that hears `pcm`."""
    estimator = Estimator()
    estimator.append(words)
    heard: list[WordTimestamp] = []
    for start in range(0, len(pcm), 2 * frame):
        made = start // 2
        new = estimator.push(pcm[start : start + 2 * frame])
        assert all(row.start_sample >= made for row in new), "a word came after its sound"
        heard += new
    return heard + list(estimator.finish())


def test_words_follow_the_usual_rate() -> None:
    """Over even sound words come at fifteen letters a second, white space included."""
    rows = run(split_words("aaaa bbbb cccc dddd"), sound(3.0))
    starts_s = [row.start_sample / SAMPLE_RATE_HZ for row in rows]
    assert starts_s == pytest.approx([0, 1 / 3, 2 / 3, 1.0], abs=0.02)
    assert not any(row.is_exact for row in rows)


def test_silence_stops_the_clock() -> None:
    """A pause of the voice moves the words behind it by its length."""
    pcm = sound(0.3) + bytes(2 * SAMPLE_RATE_HZ) + sound(2.0)
    rows = run(split_words("aaaa bbbb cccc dddd"), pcm)
    assert rows[3].start_sample / SAMPLE_RATE_HZ == pytest.approx(2.0, abs=0.3)


def test_what_is_left_ends_with_the_audio() -> None:
    """A voice that is faster than usual still gets every word, no later than it looks ahead."""
    rows = run(split_words("one two three four five six seven"), sound(0.5))
    assert len(rows) == 7
    assert rows[-1].start_sample <= 0.75 * SAMPLE_RATE_HZ


@given(any_text(), st.integers(50, 4000))
def test_every_word_once_in_order(text: str, frame: int) -> None:
    """Whatever the text and however the audio comes: each word once, starts never fall."""
    words = split_words(text)
    rows = run(words, sound(1.0), frame)
    assert [row.word for row in rows] == words
    starts = [row.start_sample for row in rows]
    assert starts == sorted(starts)


@given(any_text().flatmap(lambda text: st.tuples(st.just(text), chunked(text))))
def test_words_of_a_growing_text_are_those_of_the_whole(case: tuple[str, list[str]]) -> None:
    """However a text arrives, its words are those that it has as a whole."""
    text, deltas = case
    growing = GrowingWords()
    words = [word for delta in deltas for word in growing.push(delta)]
    assert words + growing.finish() == split_words(text)


def test_a_long_part_that_ends_within_a_word_cuts_none() -> None:
    """Thousands of characters at once, cut anywhere, give the words of the whole text."""
    text = "This sentence is one of many that follow each other. " * 60
    growing = GrowingWords()
    grown = growing.push(text[:1492]) + growing.push(text[1492:]) + growing.finish()
    assert text[1491:1493].isalpha()
    assert grown == split_words(text)
