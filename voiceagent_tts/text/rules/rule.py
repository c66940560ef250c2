"""A rule of the normaliser, and what rules of several topics share."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from voiceagent_tts.text.locales import CURRENCIES, Locale

Part = tuple[str, int]
"""Words to say, and the index in the match of the text that they replace."""
MatchReader = Callable[[re.Match[str], Locale], Sequence[Part] | None]
"""Returns the words for a match; None leaves it as it is."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Replaces matches of a pattern by what `say` returns."""

    pattern: re.Pattern[str]
    say: MatchReader

    @classmethod
    def of(cls, pattern: str, say: MatchReader) -> "Rule":
        """Make a rule of a pattern that is not compiled yet."""
        return cls(re.compile(pattern), say)


# Parts of patterns.

START = r"(?<![\w.,/:-])(?:(?<=[^\W\d_]['’])|(?<!['’]))"
"""Where a number may begin; after an apostrophe only if a letter precedes it, as in "all'1:30"."""
END = r"(?![\w/])(?!-\w)(?![.,:]\d)"
WIDE_MARKS = "，。、；：！？"
CURRENCY_SIGN = r"[$€£¥]"
MONEY = f"(?:{CURRENCY_SIGN}|{'|'.join(map(re.escape, CURRENCIES))})"


def number_pattern(locale: Locale) -> str:
    """Pattern of a number, perhaps with marks between groups of three digits, and decimals."""
    group, decimal = re.escape(locale.group), re.escape(locale.decimal)
    return rf"(?:\d{{1,3}}(?:{group}\d{{3}}){{1,4}}|\d{{1,15}})(?!\d)(?:{decimal}\d+)?"


def units_pattern(locale: Locale) -> str:
    """Pattern of the signs of units, the longest first."""
    return "|".join(sorted(map(re.escape, locale.units), key=len, reverse=True))


_TEXT_END = re.compile(r"\s*\Z")


# The text next to a match, up to a number of characters.


def text_before(match: re.Match[str], chars: int) -> str:
    """The text before a match."""
    return match.string[max(0, match.start() - chars) : match.start()]


def text_after(match: re.Match[str], chars: int) -> str:
    """The text after a match."""
    return match.string[match.end() : match.end() + chars]


# Words to say.


def value_of(number: str, locale: Locale) -> float:
    """The value of what `number_pattern` matches."""
    return float(number.replace(locale.group, "").replace(locale.decimal, "."))


def counted(number: str, noun: str, locale: Locale) -> str:
    """A number before its noun: in words if they agree with it, as in "una hora"."""
    digits = number.replace(locale.group, "")
    return (digits.isdecimal() and locale.counted(int(digits), noun)) or number


def apart(said: str, match: re.Match[str]) -> str:
    """Return `said` with spaces where a letter, digit or bracket is next to the match."""
    before, after = text_before(match, 1), text_after(match, 1)
    gap_before = " " if before.isalnum() or before == ")" else ""
    return gap_before + said + (" " if after.isalnum() or after == "(" else "")


def last_dot(match: re.Match[str]) -> str:
    """The dot at the end of a match, which also ends the sentence at the end of a text."""
    is_last = match[0].endswith(".") and _TEXT_END.match(match.string, match.end())
    return "." if is_last else ""


def say_nothing(match: re.Match[str], locale: Locale) -> list[Part]:
    """Leave a match out."""
    return []
