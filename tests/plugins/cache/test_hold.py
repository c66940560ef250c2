"""Text that is fed as it is written: held back while it begins a cached phrase, and no longer."""

import pytest

from voiceagent_tts.core import Reading, Segment
from voiceagent_tts.plugins.cache.hold import HOLD_S, Part, PhraseHold
from voiceagent_tts.plugins.cache.phrases import (
    Phrase,
    PhraseVoice,
    SegmentVariant,
    SynthesisParams,
    WordTime,
    key_of,
)
from voiceagent_tts.plugins.cache.store import ContextPhrases, PhraseCache
from voiceagent_tts.text.words import split_words

NOVA = PhraseVoice("nova")
PARAMS = SynthesisParams("qwen3", "m", "r", NOVA, None, 1.0, None, None)
NOW = 100.0
GREETING, MENU = "Thank you for calling.", "Press two."


class Listener:
    """A hold over a real cache, and what it has passed on."""

    def __init__(self, *phrases: str) -> None:
        cache = PhraseCache(1e6, 60, 1)
        for text in phrases:
            words = tuple(WordTime(0, 1, 1.0) for _ in split_words(text))
            for variant in (SegmentVariant("en"), SegmentVariant("en", lacks_lead=True)):
                key = key_of(PARAMS, variant, Segment(text, 0))
                assert key is not None
                cache.store(key, Phrase(text, NOVA, bytes(960), words))
        own = ContextPhrases(cache, PARAMS, needs_words=True, lacks_lead=True, has_pauses=False)
        self.parts: list[tuple[str, str]] = []
        self._chars = 0
        self.hold = PhraseHold(own, "en")

    def hear(self, parts: list[Part]) -> "list[tuple[str, str]]":
        """Note what was passed on; return all so far."""
        for piece in parts:
            assert piece.segment.char_start == sum(len(text) for _, text in self.parts)
            self.parts.append(("live" if piece.phrase is None else "phrase", piece.segment.text))
        return self.parts

    def write(self, *deltas: str) -> "list[tuple[str, str]]":
        """Push text; return all that was passed on so far."""
        for delta in deltas:
            self.hear(self.hold.push(Segment(delta, self._chars), NOW))
            self._chars += len(delta)
        return self.parts


def test_other_text_does_not_wait() -> None:
    """The first characters that begin no phrase are passed on at once, and so is the rest."""
    listener = Listener(GREETING)
    assert listener.write("The") == [("live", "The")]
    assert listener.write(" weather") == [("live", "The"), ("live", " weather")]
    assert Listener().write("Th") == [("live", "Th")]


def test_a_phrase_is_recognized_as_it_is_written() -> None:
    """Token by token; text behind it is live again at once."""
    listener = Listener(GREETING, MENU)
    assert listener.write(*GREETING) == []
    assert listener.write(" ", "Pre") == [("phrase", GREETING)]
    listener.write("ss two.", " Or", " stay.")
    assert listener.parts[1:] == [("phrase", f" {MENU}"), ("live", " Or"), ("live", " stay.")]


@pytest.mark.parametrize("deltas", [[GREETING], ["Thank you ", "for calling."]])
def test_the_end_of_the_text_completes_a_phrase(deltas: list[str]) -> None:
    """So does a flush; the text after it may be a phrase again."""
    listener = Listener(GREETING, MENU)
    listener.write(*deltas)
    listener.hear(listener.hold.flush())
    assert listener.parts == [("phrase", GREETING)]
    listener.write(f" {MENU}")
    listener.hear(listener.hold.flush())
    assert listener.parts[1:] == [("phrase", f" {MENU}")]


def test_a_phrase_that_does_not_come_is_given_up() -> None:
    """After 40 ms the held text is spoken; what follows does not wait."""
    listener = Listener(GREETING)
    assert listener.write("Thank", " you") == []
    assert listener.hold.due_at == NOW + HOLD_S
    assert listener.hear(listener.hold.give_up()) == [("live", "Thank you")]
    assert listener.hold.due_at is None
    assert listener.write(" all.") == [("live", "Thank you"), ("live", " all.")]


def test_a_sentence_that_is_longer_than_its_phrase_is_live() -> None:
    """The beginning of one that was held is passed on together with what shows the difference."""
    listener = Listener(GREETING)
    listener.write("Thank you for calling")
    assert listener.write(" back") == [("live", "Thank you for calling back")]


def test_readings_stay_with_their_text() -> None:
    """A word of a lexicon in held text keeps its pronunciation."""
    cache = PhraseCache(1e6, 60, 1)
    own = ContextPhrases(cache, PARAMS, needs_words=True, lacks_lead=True, has_pauses=False)
    hold = PhraseHold(own, "en")
    segment = Segment("Ask aaaaa now", 0, (Reading(4, 9, "engine x"),))
    assert [piece.segment for piece in hold.push(segment, NOW)] == [segment]
