"""Text that is fed token by token, held back while it may become a phrase of the cache.

Knows no engine, no audio and no clock: the time is passed in.
"""

from dataclasses import dataclass

from voiceagent_tts.core import Reading, Segment
from voiceagent_tts.plugins.cache.phrases import Phrase
from voiceagent_tts.plugins.cache.store import ContextPhrases
from voiceagent_tts.text.segmenter import Segmenter

HOLD_S = 0.04
"""Longest wait for the rest of a phrase; a miss costs no more."""


@dataclass(frozen=True, slots=True)
class Part:
    """Text that waits no longer.

    Attributes:
        phrase: its audio; None for live text, whose last word may grow.
    """

    segment: Segment
    phrase: Phrase | None


class PhraseHold:
    """Holds the text of a token-fed context back while it may become a cached phrase.

    In token feeding the engine begins with the first words, before a phrase is complete. So the
    beginning of a run of text (of the context, or after a flush) waits, while it begins a phrase
    that the cache has: until the sentence is complete, or 40 ms have passed. Then the rest of the
    run is live. Text that begins no phrase does not wait at all.

    Attributes:
        due_at: when `give_up` is due; None if no text is held.
    """

    def __init__(self, phrases: ContextPhrases, language: str | None) -> None:
        self.due_at: float | None = None
        self._phrases = phrases
        self._language = language
        self._begin_run()

    def push(self, delta: Segment, now: float) -> list[Part]:
        """Append text, with its readings; return what waits no longer."""
        if not self._is_holding:
            return [Part(delta, None)]
        if not self._text:
            self._char_start = delta.char_start
        self._text += delta.text
        self._readings += delta.readings
        parts: list[Part] = []
        for sentence in self._segmenter.push(delta.text):
            parts += self._say(len(sentence.text))
            if not self._is_holding:
                return parts
        if self._text and not self._phrases.begins(self._part(len(self._text))):
            parts += self.give_up()
        elif self._text and self.due_at is None:
            self.due_at = now + HOLD_S
        return parts

    def flush(self) -> list[Part]:
        """Return all text; text that follows may be a phrase again."""
        parts: list[Part] = []
        if self._text:
            parts = self._say(len(self._text))
        self.due_at = None
        self._begin_run()
        return parts

    def give_up(self) -> list[Part]:
        """Return the held text: the run is live from here on."""
        self.due_at = None
        held = self._part(len(self._text))
        self._is_holding = False
        self._phrases.has_sound = True
        self._text, self._readings = "", ()
        return [Part(held, None)] if held.text else []

    def _begin_run(self) -> None:
        self._is_holding = True
        self._text = ""
        self._char_start = 0
        self._readings: tuple[Reading, ...] = ()
        self._segmenter = Segmenter(first_clause=False, language=self._language)

    def _say(self, chars: int) -> list[Part]:
        """Return a sentence as a phrase, or all held text if the cache does not have it."""
        sentence = self._part(chars)
        if any(each.char_end > sentence.char_end for each in sentence.readings):
            return self.give_up()  # a long word is divided, and what is said for it is not
        phrase = self._phrases.find(sentence, self._language).phrase
        if phrase is None:
            return self.give_up()
        self.due_at = None
        self._text = self._text[chars:]
        self._char_start = sentence.char_end
        self._readings = self._readings[len(sentence.readings) :]
        return [Part(sentence, phrase)]

    def _part(self, chars: int) -> Segment:
        """The first characters of the held text."""
        char_end = self._char_start + chars
        readings = tuple(each for each in self._readings if each.char_start < char_end)
        return Segment(self._text[:chars], self._char_start, readings)
