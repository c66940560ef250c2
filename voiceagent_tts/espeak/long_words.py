"""Divides words that espeak-ng cannot read. Knows no voice and no audio."""

import itertools
import re

_PHONEMES = re.compile(r"(\[\[.*?\]\])")
_LONG_WORD = re.compile(r"\S{100,}")
_MARK = re.compile(r"[!-/:-@\\^-`{}~\x91\x92´ʻʼ‘’′]")
_MARKS_PER_WORD = 20


def divided(text: str) -> str:
    """Return `text` with a space in place of every 20th mark of a long word.

    espeak-ng 1.52 writes beyond a buffer, and ends the process, in a word with 68 times `'s`, 100
    times `?s` or 101 times `.é`. Names of phonemes in double brackets stay as they are.
    """
    parts = _PHONEMES.split(text)
    parts[::2] = [_LONG_WORD.sub(_divided_word, part) for part in parts[::2]]
    return "".join(parts)


def _divided_word(word: re.Match[str]) -> str:
    number = itertools.count(1)
    return _MARK.sub(
        lambda mark: mark.group() if next(number) % _MARKS_PER_WORD else " ", word.group()
    )
