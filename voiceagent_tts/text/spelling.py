"""Spells codes and phone numbers: character by character, in groups.

"A7-42X" becomes "A-7, 4 2 X": a comma makes a pause, and the hyphen keeps an English voice from
reading a single "A" as the article. This module knows no language.
"""

import re

from voiceagent_tts.text.words import is_syllabic

_RUN = re.compile(r"[^\s\-‐‑‒–—./\\():;,_|]+")
"""A group as written: characters between separators, which are pauses."""
_WHOLE_CHARS = 4
"""Longest group that is not divided."""
_GROUP_CHARS = 3


def spell(code: str) -> str:
    r"""What is said for `code`; empty if it has no letter or digit.

    A group is what stands between white space and `- . / \ ( ) : ; , _ |`. A longer group than
    four characters is said in groups of three, the last of two to four. A symbol such as `+` is
    said with the character after it.
    """
    groups = [_spelled(group) for run in _RUN.findall(code) for group in _groups(_units(run))]
    return ", ".join(groups)


def _units(run: str) -> list[str]:
    """Letters and digits of a run, each with the symbols and marks that belong to it."""
    units: list[str] = []
    symbols = ""
    for character in run:
        if character.isalnum():
            units.append(symbols + _said(character))
            symbols = ""
        else:
            symbols += character
    if units:
        units[-1] += symbols
    return units


def _said(character: str) -> str:
    upper = character.upper()
    return upper if len(upper) == 1 else character


def _groups(units: list[str]) -> list[list[str]]:
    if not units:
        return []
    groups: list[list[str]] = []
    while len(units) > _WHOLE_CHARS:
        groups.append(units[:_GROUP_CHARS])
        units = units[_GROUP_CHARS:]
    return [*groups, units]


def _spelled(units: list[str]) -> str:
    said = units[0]
    for before, unit in zip(units, units[1:], strict=False):
        joins = before[-1].isalpha() and not is_syllabic(before[-1])
        said += ("-" if joins else " ") + unit
    return said
