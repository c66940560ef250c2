"""Sentence ends: whether the mark at the end of a token ends a sentence.

Abbreviations come from `text/abbreviations.py` and `sentencex`, which judges one border at a time
from the last few words, so no result depends on later text. In a text of no known language a full
stop ends a sentence unless one of our languages has an abbreviation there.
"""

import re
from enum import Enum

LOOKBACK_CHARS = 40  # number of characters before the end of a mark that suffice to judge it

_LATIN_AND_CYRILLIC = ("en", "de", "fr", "es", "pt", "ru")
"""Languages asked where none is named; "it" and "so" are abbreviations of Italian."""

_CONTINUES = re.compile(r"\d|(?!OK\b)[A-Z]{2,4}\b|[A-Z]\w+day\b")
"""Text that continues a sentence after an abbreviation: "Apt. 4", "3 p.m. EST"."""

_NUMBERED_ITEM = re.compile(r"\W*\d+\.")
_ORDINAL = re.compile(r"(?:^|[^\d.,:])\d{1,2}\.$")
_GERMAN_ORDINAL = re.compile(
    r"\b(?:am|im|der|des|dem|den|die|das|vom|zum|zur|beim|seit|ab|bis) \d{1,2}\.$", re.IGNORECASE
)
_UNSAFE = re.compile(r"[^\w\s.'’-]")
"""Characters removed before sentencex: quotes suspend its rules, and surrogates crash it."""
_WORD = re.compile(r"[^\W_]+")
_ANY_NAME = "Xavier"  # a next word that follows an abbreviation as often as it starts a sentence


class Ending(Enum):
    """Meaning of the mark at the end of a token."""

    SENTENCE = "sentence"
    UNDECIDED = "undecided"  # the word after it decides
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
    is_end = not _short(before, language) and _separates(before, _ANY_NAME, language)
    return Ending.SENTENCE if is_end else Ending.UNDECIDED


def ends_sentence_before(before: str, following: str, language: str | None) -> bool:
    """Judge an undecided end by the word after it; "" if the client has stopped writing."""
    if following[:1].islower():
        return False
    if before.endswith(("..", "…")):
        return True
    short = _short(before, language)
    is_joined = short and (short["named"] or _CONTINUES.match(following))
    if is_joined or (language in (None, "de") and _GERMAN_ORDINAL.search(before)):
        return False
    if language is None and not _separates(before, _ANY_NAME, "en"):
        if _separates(before, following, "en"):
            return True  # English has words that begin sentences
    return _separates(before, following, language)


def _separates(before: str, following: str, language: str | None) -> bool:
    """Whether every possible language has a sentence border between the two."""
    from sentencex import segment  # pyright: ignore  # an engine that is fed token ids lacks it

    from voiceagent_tts.text import abbreviations

    words = _UNSAFE.sub("", before).split()
    last = words[-1][:-1] if words else ""
    if not last or last.lower() in abbreviations.BEFORE_A_NAME:
        return False
    if last in abbreviations.WORDS_FIRST:
        return True
    next_word = _WORD.search(following)
    name = next_word.group() if next_word else _ANY_NAME
    asked = _LATIN_AND_CYRILLIC if language is None else (language.partition("-")[0],)
    text = f"{' '.join(words)} {name}"
    return all(segment(code, text)[-1] == name for code in asked)  # pyright: ignore


def _short(before: str, language: str | None) -> re.Match[str] | None:
    from voiceagent_tts.text import abbreviations

    pattern = abbreviations.SHORT.get((language or "en").partition("-")[0])
    return pattern and pattern.search(before)
