"""Phrases: their words in another text, and the bytes in which Redis keeps them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.core import Segment, Word, WordTimestamp
from voiceagent_tts.plugins.cache.phrases import Phrase, PhraseVoice, WordTime, word_times

PHRASE = Phrase(
    "One moment.",
    PhraseVoice("nova"),
    bytes(9600),
    (WordTime(10, 900, 1.0), WordTime(1000, None, 0.8)),
)


def test_words_get_the_offsets_of_the_text_that_they_are_in() -> None:
    """A phrase that is written differently and stands elsewhere keeps its times."""
    words = PHRASE.timed_words(Segment(" **One** moment.", 40), start_sample=24_000)
    assert words == (
        WordTimestamp(Word("**One**", 41, 48), 24_010, 24_900, 1.0),
        WordTimestamp(Word("moment.", 49, 56), 25_000, None, 0.8),
    )
    assert word_times(words, 24_000) == PHRASE.words


@given(
    st.text(),
    st.builds(PhraseVoice, st.text(), st.text()),
    st.binary().map(lambda data: data * 2),
    st.none()
    | st.lists(st.builds(WordTime, st.integers(), st.none() | st.integers(), st.floats(0, 1))).map(
        tuple
    ),
)
def test_a_phrase_survives_its_bytes(
    text: str, voice: PhraseVoice, pcm: bytes, words: tuple[WordTime, ...] | None
) -> None:
    """Any text, voice and audio, also with line ends in them."""
    phrase = Phrase(text, voice, pcm, words)
    assert Phrase.load(phrase.dump()) == phrase


def test_a_phrase_is_read_by_servers_of_other_versions() -> None:
    """A server drops the phrases of a clone that is removed, whichever version stored them."""
    line = (
        b'{"text": "Hi.", "spoken": {"voice": "anna", "content": "0f", "owner": "k1"}, '
        b'"words": [[0, null, 1.0]]}\n'
    )
    phrase = Phrase("Hi.", PhraseVoice("anna", "0f", "k1"), b"\1\0", (WordTime(0, None, 1.0),))
    assert Phrase.load(line + b"\1\0") == phrase and phrase.dump() == line + b"\1\0"


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"[]\n", b"{}\n", b'{"text": "a", "spoken": {}, "words": 3}\n', b"\xff\n"]
)
def test_other_bytes_are_no_phrase(data: bytes) -> None:
    """Whatever else is in Redis is refused, and not misread."""
    with pytest.raises(ValueError):
        Phrase.load(data)
