"""How else people read a number than the embedded voice does: digit by digit, in pairs, as a year.

What the embedded voice says for a word of the text is the first reading; these are the others. They
are passed to espeak as they are. This module knows no voice.
"""

import re

_NUMBER = re.compile(r"\W*(\d(?:[\d.,:/()+ -]*\d)?)\W*")
_YEAR = re.compile(r"\W*((?:1[1-9]|20)\d\d)\W*")
_LEAST_DIGITS = 4
"""Shorter numbers are read in one way."""
_PAIRED_DIGITS = (4, 6)
_MOST_DIGITS = 16


def other_readings(word: str) -> tuple[str, ...]:
    """The other readings of a word; empty for most words."""
    number = _NUMBER.fullmatch(word)
    digits = "".join(filter(str.isdigit, number[1])) if number else ""
    if not _LEAST_DIGITS <= len(digits) <= _MOST_DIGITS:
        return ()
    readings = [" ".join(digits)]
    if (year := _YEAR.fullmatch(word)) is not None:
        readings.append(year[1])  # as a number
    if len(digits) in _PAIRED_DIGITS:
        readings.append(" ".join(digits[at : at + 2] for at in range(0, len(digits), 2)))
    return tuple(readings)


def may_be_read_otherwise(word: str) -> bool:
    """Whether speakers may say something for `word` that no reading foresees: it has a digit."""
    return any(character.isdigit() for character in word)
