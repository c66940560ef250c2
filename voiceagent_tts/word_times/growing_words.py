"""Words of a text that arrives in parts, as an engine is fed with it."""

import re

from voiceagent_tts.core import Word
from voiceagent_tts.text.words import split_words

_MAX_GROWING_CHARS = 1_000
"""Length above which an unfinished word is split, so that it is not scanned with every delta."""
_SPOKEN = re.compile(r"[^\W_]")


class GrowingWords:
    """Splits a text that arrives in parts into the words that the whole text has."""

    def __init__(self) -> None:
        self._rest = ""
        self._char_start: int = 0
        self._unspoken_chars = 0
        """Length of the start of `_rest` that has no letter or digit, and is not scanned again."""

    def push(self, delta: str) -> list[Word]:
        """Append text; return the words that it completes: all but the last, which may grow."""
        words: list[Word] = []
        while delta:  # in parts, as a long word is split at the same place however it arrives
            room = max(1, _MAX_GROWING_CHARS - len(self._rest) + self._unspoken_chars)
            words += self._grown(delta[:room])
            delta = delta[room:]
        return words

    def _grown(self, delta: str) -> list[Word]:
        self._rest += delta
        words = self._split()
        start = words[-1].char_start - self._char_start if words else 0
        spoken = _SPOKEN.search(self._rest, max(start, self._unspoken_chars))
        self._unspoken_chars = spoken.start() if spoken else len(self._rest)
        if len(self._rest) - self._unspoken_chars < _MAX_GROWING_CHARS:
            words = words[:-1]
        if words:
            self._drop(words[-1].char_end - self._char_start)
        return words

    def _drop(self, chars: int) -> None:
        self._char_start += chars
        self._rest, self._unspoken_chars = self._rest[chars:], 0

    def finish(self, char_end: int | None = None) -> list[Word]:
        """Return the remaining words, if before `char_end`; later text begins another word."""
        words = self._split()
        if char_end is not None and not (words and words[0].char_start < char_end):
            return []
        self._drop(len(self._rest))
        return words

    def _split(self) -> list[Word]:
        unspoken = self._unspoken_chars
        words = split_words(self._rest[unspoken:], self._char_start + unspoken)
        if words and unspoken:  # the first word begins with the first visible character
            start = len(self._rest) - len(self._rest.lstrip())
            end = words[0].char_end
            text = self._rest[start : end - self._char_start]
            words[0] = Word(text, self._char_start + start, end)
        return words
