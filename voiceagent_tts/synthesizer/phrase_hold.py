"""Holds text of a token-fed context back while it may become a cached phrase.

In token feeding the engine begins with the first words, before a phrase is complete. So the
beginning of a run of text (of the context, or after a flush) waits, while it begins a phrase that
the cache has: until the sentence is complete, or 40 ms have passed. Then the rest of the run is
live. Text that begins no phrase does not wait at all. Knows no audio.
"""

from collections.abc import Callable

from voiceagent_tts.cache.context_phrases import ContextPhrases
from voiceagent_tts.core import Reading, Segment
from voiceagent_tts.synthesizer.timers import MakeTimer, Timer
from voiceagent_tts.text.segmenter import Segmenter

HOLD_S = 0.04
"""Longest wait for the rest of a phrase; a miss costs no more."""


class PhraseHold:
    """Passes the text of one context on, as phrases or as it arrives.

    Args:
        phrases: the cache, as the context uses it; None to hold nothing back.
        language: language of the context; None if the engine chooses.
        speak: receives all text, and whether the engine must speak it: not so the sentences that
            are in the cache.
        make_timer: makes its timer.
    """

    def __init__(
        self,
        phrases: ContextPhrases | None,
        language: str | None,
        speak: Callable[[Segment, bool], None],
        make_timer: MakeTimer = Timer,
    ) -> None:
        self._phrases = phrases
        self._language = language
        self._speak = speak
        self._deadline = make_timer(self._give_up)
        self._is_first = True
        self._begin_run()

    def push(self, delta: Segment) -> None:
        """Append text, with its readings."""
        if self._phrases is None or not self._is_holding:
            self._speak(delta, True)
            return
        if not self._text:
            self._char_start = delta.char_start
        self._text += delta.text
        self._readings += delta.readings
        for sentence in self._segmenter.push(delta.text):
            if not self._say(self._phrases, len(sentence.text)):
                return
        if self._text and not self._phrases.begins(self._part(len(self._text))):
            self._give_up()
        elif self._text and not self._deadline.is_running:
            self._deadline.start(HOLD_S)

    def flush(self) -> None:
        """Pass all text on; text that follows may be a phrase again."""
        if self._phrases is not None and self._text:
            self._say(self._phrases, len(self._text))
        self.stop()
        self._begin_run()

    def stop(self) -> None:
        """Stop the timer; text that is held remains."""
        self._deadline.stop()

    def _begin_run(self) -> None:
        self._is_holding = True
        self._text = ""
        self._char_start = 0
        self._readings: tuple[Reading, ...] = ()
        self._segmenter = Segmenter(first_clause=False, language=self._language)

    def _say(self, phrases: ContextPhrases, chars: int) -> bool:
        """Pass a sentence on; without it in the cache, the run is live from here on."""
        sentence = self._part(chars)
        if not phrases.has(sentence, self._language, is_first=self._is_first):
            phrases.count_miss()
            self._give_up()
            return False
        self._deadline.stop()
        self._text = self._text[chars:]
        self._char_start = sentence.char_end
        self._readings = self._readings[len(sentence.readings) :]
        self._is_first = False
        self._speak(sentence, False)
        return True

    def _part(self, chars: int) -> Segment:
        """The first characters of the held text."""
        char_end = self._char_start + chars
        readings = tuple(each for each in self._readings if each.char_start < char_end)
        return Segment(self._text[:chars], self._char_start, readings)

    def _give_up(self) -> None:
        self.stop()
        held = self._part(len(self._text))
        self._is_holding = self._is_first = False
        self._text, self._readings = "", ()
        if held.text:
            self._speak(held, True)
