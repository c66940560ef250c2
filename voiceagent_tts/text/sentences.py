"""Sentence ends: whether the mark at the end of a token ends a sentence.

Abbreviations come from `sentencex`, which judges one border at a time from the last few words, so
no result depends on later text. If the language of a context is unknown, a full stop ends a
sentence unless one of our languages has an abbreviation there. This module keeps no text and knows
no time.
"""

import re
from enum import Enum
from typing import cast

LOOKBACK_CHARS = 40
"""Number of characters before the end of a mark that suffice to judge it."""

_LATIN_AND_CYRILLIC = ("en", "de", "fr", "es", "pt", "ru")
"""Languages used where the language is unknown. Italian is left out: its abbreviations include
"it", "so", "on" and "am"."""

_BEFORE_A_NAME_OR_NUMBER = frozenset(
    "ms mlles mmes aprox approx dott dott.ssa inkl zzgl nº abb bd др напр т.е им тел ул".split()
)
"""Abbreviations that sentencex 1.0.32 lacks in their language, or that are Italian."""

_WORDS_FIRST = frozenset("me ok Ok OK in may an da auto Auto bien vie ver".split())
"""Abbreviations of one language in sentencex 1.0.32 that are common words of another."""

_NUMBERED_ITEM = re.compile(r"\W*\d+\.")
_ORDINAL = re.compile(r"(?:^|[^\d.,:])\d{1,2}\.$")
_GERMAN_ORDINAL = re.compile(
    r"\b(?:am|im|der|des|dem|den|die|das|vom|zum|zur|beim|seit|ab|bis) \d{1,2}\.$", re.IGNORECASE
)
_UNSAFE = re.compile(r"[^\w\s.'’-]")
"""Characters removed before sentencex: quotes suspend its rules, and surrogates crash it."""
_WORD = re.compile(r"[^\W_]+")
_ANY_NAME = "Xavier"
"""A next word that follows an abbreviation as often as it starts a sentence."""


class Ending(Enum):
    """What the mark at the end of a token means."""

    SENTENCE = "sentence"
    UNDECIDED = "undecided"
    """The word after it decides."""
    NONE = "none"


def ending_of(before: str, marks: str, language: str | None) -> Ending:
    """Judge the end of a token whose next word is not known yet.

    Args:
        before: the last words, up to and including `marks`.
        marks: sentence marks at the end of `before`; may be empty.
        language: code of the text's language, if known.
    """
    if not marks:
        return Ending.NONE
    if not set(marks) <= set(".…"):
        return Ending.SENTENCE
    if marks != "." or _ORDINAL.search(before):
        return Ending.NONE if _NUMBERED_ITEM.fullmatch(before) else Ending.UNDECIDED
    return Ending.SENTENCE if _separates(before, _ANY_NAME, language) else Ending.UNDECIDED


def ends_sentence_before(before: str, following: str, language: str | None) -> bool:
    """Judge an undecided end by the word after it; "" if the client has stopped writing."""
    if following[:1].islower():
        return False
    if before.endswith(("..", "…")):
        return True
    if language in (None, "de") and _GERMAN_ORDINAL.search(before):
        return False
    if language is None and _starts_english_sentence(before, following):
        return True
    return _separates(before, following, language)


def _separates(before: str, following: str, language: str | None) -> bool:
    """Whether every possible language has a sentence border between the two."""
    words = _UNSAFE.sub("", before).split()
    last = words[-1][:-1] if words else ""
    if not last or last.lower() in _BEFORE_A_NAME_OR_NUMBER:
        return False
    if last in _WORDS_FIRST:
        return True
    next_word = _WORD.search(following)
    name = next_word.group() if next_word else _ANY_NAME
    asked = _LATIN_AND_CYRILLIC if language is None else (language.partition("-")[0],)
    return all(_sentences(code, f"{' '.join(words)} {name}")[-1] == name for code in asked)


def _starts_english_sentence(before: str, following: str) -> bool:
    """Whether English puts a border here because `following` is a word that begins sentences."""
    return _separates(before, following, "en") and not _separates(before, _ANY_NAME, "en")


def _sentences(code: str, text: str) -> list[str]:
    from sentencex import segment  # pyright: ignore  # an engine that is fed token ids lacks it

    return cast("list[str]", segment(code, text))
