"""Abbreviated words, among them months and days of the week next to a date."""

import re
from collections.abc import Iterator
from functools import lru_cache

from voiceagent_tts.text import abbreviations
from voiceagent_tts.text.locales import Locale
from voiceagent_tts.text.rules.rule import Part, Rule, last_dot, say_nothing, text_after

_SHORT_MONTH = re.compile(r"(?:(?<=\d )|(?<=\d\. )|(?<=\d de ))([^\W\d_]{3,5})\.(?=,| \w)")


@lru_cache(maxsize=64)
def rules(locale: Locale) -> tuple[Rule, ...]:
    """Rules for abbreviated words."""
    patterns = abbreviations.PATTERNS.get(locale.language, ())
    rules = [Rule(pattern, _say_in_full) for pattern in patterns]
    if locale.words.strokes:
        strokes = "|".join(locale.words.strokes)
        rules.append(Rule.of(rf"(?<![\w/])(?:{strokes})(?=\s)", _say_stroke))
    if locale.language == "en" or not locale.is_spaced:
        return tuple(rules)
    day, dash = f"({'|'.join(locale.full_days)})", rf" ?(?:[-–]|\b{locale.symbols['–']}\b) ?"
    days = rf"(?i)\b(?:{day}\.?({dash}){day}\b\.?(?!\w)|(?=(?-i:[A-Z])|\w{{3}}){day}\.(?=,? \d))"
    return (Rule(_SHORT_MONTH, _say_month), Rule.of(days, _say_days), *rules)


def beside_words(reads_digits: bool) -> Iterator[Rule]:
    """Rules for English words that depend on numbers in words."""
    if not reads_digits:
        yield Rule(abbreviations.APART, say_nothing)
        yield Rule(abbreviations.HALF_DAY, _say_half_day)
    yield Rule(abbreviations.DAY, _say_in_full)
    yield Rule(abbreviations.MONTH, _say_in_full)


def _say_in_full(match: re.Match[str], locale: Locale) -> list[Part] | None:
    said = abbreviations.in_full(match, locale.language)
    return None if said is None else [(said, 0)]


def _say_stroke(match: re.Match[str], locale: Locale) -> list[Part]:
    return [(locale.words.strokes[match[0]], 0)]


def _say_half_day(match: re.Match[str], locale: Locale) -> list[Part]:
    return [(f" {match[2].upper()}.M.", len(match[1]))]


def _say_days(match: re.Match[str], locale: Locale) -> list[Part] | None:
    """An abbreviated day before its date, or two of them, as in "Mo-Fr"."""
    if match[4]:
        is_sea = match[4] == "mar" and " de " not in text_after(match, 8)
        return None if is_sea else [(locale.full_days[match[4].casefold()], 0)]
    if match[1].islower() and len(match[1]) < 3:  # "so-so" is not a Sunday
        return None
    first, last = (locale.full_days[match[group].casefold()] for group in (1, 3))
    at = match.start(2) - match.start()
    return [
        (first, 0),
        (f" {locale.symbols['–']} ", at),
        (last + last_dot(match), at + len(match[2])),
    ]


def _say_month(match: re.Match[str], locale: Locale) -> list[Part] | None:
    """An abbreviated month after its day, as in "3 janv. 2026"."""
    short = match[1].casefold()
    months = [name for name in locale.months if name.casefold().startswith(short)]
    return [(months[0], 0)] if len(months) == 1 and len(months[0]) > len(short) else None
