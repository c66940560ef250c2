"""The cut splits a text at what was heard; its two parts are always the whole text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.texts import agent_text
from voiceagent_tts.core import Cut, Word, WordTimestamp
from voiceagent_tts.text.cut import cut_text, keep_inside
from voiceagent_tts.text.words import split_words

TEXT = "One two, three. 🎉 "


def timed(text: str, starts: list[int], ends: list[int | None]) -> list[WordTimestamp]:
    words = split_words(text)
    return [
        WordTimestamp(word, start, end, confidence=1.0)
        for word, start, end in zip(words, starts, ends, strict=True)
    ]


WORDS = timed(TEXT, [100, 200, 300], [180, 280, 380])


@pytest.mark.parametrize(
    ("played", "spoken", "is_partial"),
    [
        (0, "", False),
        (100, "", False),
        (101, "One", True),
        (180, "One", False),
        (200, "One", False),
        (201, "One two,", True),
        (301, "One two, three. 🎉", True),
        (379, "One two, three. 🎉", True),
        (380, TEXT, False),
        (10_000, TEXT, False),
    ],
)
def test_a_word_is_heard_from_its_start(played: int, spoken: str, is_partial: bool) -> None:
    """A word counts from its first sample, and is partial until playback reaches its end."""
    cut = cut_text(TEXT, WORDS, played, is_final=True)
    assert cut == Cut(spoken, TEXT[len(spoken) :], is_partial)


def test_more_words_may_come() -> None:
    cut = cut_text(TEXT + "Four", WORDS, 10_000, is_final=False)
    assert cut == Cut("One two, three. 🎉", " Four", is_partial=False)


def test_an_unknown_end_is_partial_until_the_context_is_final() -> None:
    words = timed("One two", [100, 200], [180, None])
    assert cut_text("One two", words, 250, is_final=False) == Cut("One two", "", is_partial=True)
    assert cut_text("One two ", words, 250, is_final=True) == Cut("One two ", "", is_partial=False)


def test_a_text_without_words_is_unspoken_until_its_context_played() -> None:
    """Emoji alone have no audio: they count as spoken once a final context has played any audio."""
    assert cut_text("🎉", [], 0, is_final=True) == Cut("", "🎉", is_partial=False)
    assert cut_text("🎉", [], 1, is_final=False) == Cut("", "🎉", is_partial=False)
    assert cut_text("🎉", [], 1, is_final=True) == Cut("🎉", "", is_partial=False)


@settings(deadline=None)
@given(agent_text(), st.data())
def test_both_texts_joined_are_the_text(text: str, data: st.DataObject) -> None:
    """No character is lost or doubled at any position, and later positions never hear less."""
    lengths = data.draw(st.lists(st.integers(0, 3), min_size=200, max_size=200))
    words: list[WordTimestamp] = []
    start = 0
    for word, length in zip(split_words(text), lengths, strict=False):
        words.append(WordTimestamp(word, start, start + length or None, confidence=1.0))
        start += length
    is_final = data.draw(st.booleans())
    heard = 0
    for played in range(start + 5):
        cut = cut_text(text, words, played, is_final=is_final)
        assert cut.text_spoken + cut.text_remaining == text
        assert len(cut.text_spoken) >= heard
        heard = len(cut.text_spoken)


def test_an_estimate_after_the_audio_is_heard_with_its_end() -> None:
    """Once the audio's length is known, playing all of it hears every word, even a late one."""
    words = [
        WordTimestamp(Word("a", 0, 1), 0, None, confidence=0.0),
        WordTimestamp(Word("b", 2, 3), 500, None, confidence=0.0),
    ]
    inside = keep_inside(words, 400)
    assert cut_text("a b!", inside, 399, is_final=True).text_spoken == "a"
    assert cut_text("a b!", inside, 400, is_final=True) == Cut("a b!", "", is_partial=False)
    assert list(keep_inside(words, 600)) == words


def test_a_word_that_ends_after_the_audio_is_over_with_it() -> None:
    """Stretched audio is some samples shorter than the word times promise."""
    words = [WordTimestamp(Word("a", 0, 1), 0, 405, confidence=1.0)]
    inside = keep_inside(words, 400)
    assert cut_text("a 🎉", inside, 399, is_final=True) == Cut("a", " 🎉", is_partial=True)
    assert cut_text("a 🎉", inside, 400, is_final=True) == Cut("a 🎉", "", is_partial=False)
