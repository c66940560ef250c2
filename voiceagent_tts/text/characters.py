"""Times of characters, spread evenly over the time of their word.

This module knows no audio: a character's time follows from its place in the word.
"""

from bisect import bisect_left
from collections.abc import Sequence

from voiceagent_tts.core import Word, WordTimestamp

_UNKNOWN_CHARACTER_SAMPLES = (
    1_600  # 15 characters a second at 24 kHz, where a word's end is unknown
)
_SPREAD_CONFIDENCE = 0.9
"""Confidence at most of a character inside a word: its place is an estimate."""


class CharacterTimes:
    """Turns the words of one context into their characters, which keep their order in time."""

    def __init__(self) -> None:
        self._last: list[tuple[int, int]] = []
        """For each word so far: where it starts in the text, and the start of its last character in
        samples."""
        self._first_sent = 0  # the start of the last character when it was returned first

    def spread(self, words: Sequence[WordTimestamp]) -> list[WordTimestamp]:
        """Turn every visible character of `words` into a word of its own.

        The first character of a word has the word's start and confidence, the last one its end. The
        others are estimates, at most at the start of the next word. A character that would begin
        before those of earlier words is moved and is not exact: the estimates may have lain after
        the start of the word that followed.

        Args:
            words: in order; the next ones, or all words so far from one on, with better times.
        """
        characters: list[WordTimestamp] = []
        for word, following in zip(words, [*words[1:], None][: len(words)], strict=True):
            latest = None if following is None else following.start_sample
            place = bisect_left(self._last, (word.word.char_start,))
            is_new = place == len(self._last)
            earliest = self._last[place - 1][1] if place else 0
            characters += _spread(word, max(earliest, self._first_sent * is_new), latest)
            last_start = characters[-1].start_sample
            self._last[place : place + 1] = [(word.word.char_start, last_start)]
            if is_new:
                self._first_sent = last_start
        return characters


def _spread(timestamp: WordTimestamp, earliest: int, latest: int | None) -> list[WordTimestamp]:
    word, start, end = timestamp.word, timestamp.start_sample, timestamp.end_sample
    count = len(word.text)
    length = count * _UNKNOWN_CHARACTER_SAMPLES if end is None else end - start
    if latest is not None:
        length = min(length, latest - start)
    starts = [max(earliest, start + length * index // count) for index in range(count)]
    ends = [None] * count if end is None else [*starts[1:], max(end, starts[-1])]
    confidence = min(timestamp.confidence, _SPREAD_CONFIDENCE)
    return [
        WordTimestamp(
            Word(char, word.char_start + index, word.char_start + index + 1),
            starts[index],
            ends[index],
            timestamp.confidence if index == 0 and starts[0] == start else confidence,
        )
        for index, char in enumerate(word.text)
        if not char.isspace()
    ]
