"""Times of characters, spread evenly over the time of their word.

This module knows no audio: a character's time follows from its place in the word.
"""

from collections.abc import Sequence

from voiceagent_tts.core import Word, WordTimestamp

_UNKNOWN_CHARACTER_SAMPLES = (
    1_600  # 15 characters a second at 24 kHz, where a word's end is unknown
)
_SPREAD_CONFIDENCE = 0.9
"""Confidence at most of a character inside a word: its place is an estimate."""


def spread_characters(words: Sequence[WordTimestamp], earliest: int = 0) -> list[WordTimestamp]:
    """Turn every visible character of `words` into a word of its own, in order.

    The first character of a word has the word's start and confidence, the last one its end. The
    others are estimates, at most at the start of the next word.

    Args:
        words: in order.
        earliest: earliest start of a character; one that would begin before it is moved and is not
            exact. Estimated characters of words sent earlier may lie after the next word's start.
    """
    characters: list[WordTimestamp] = []
    for word, following in zip(words, [*words[1:], None], strict=True):
        latest = None if following is None else following.start_sample
        characters += _spread(word, earliest, latest)
        earliest = characters[-1].start_sample
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
