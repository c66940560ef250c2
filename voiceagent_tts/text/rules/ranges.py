"""Ranges of numbers, times of day, days and months; a dash in them is said as "to"."""

import re
from collections.abc import Iterator

from voiceagent_tts.text import abbreviations
from voiceagent_tts.text.locales import Locale
from voiceagent_tts.text.rules.rule import (
    MONEY,
    START,
    WIDE_MARKS,
    Part,
    Rule,
    number_pattern,
    text_before,
    units_pattern,
    value_of,
)

_HALF = r"(?: ?[AaPp]\.?[Mm]\b\.?)"
_CLOCK_RANGE = re.compile(
    rf"{START}(\d?\d(?:[:.]\d\d)?(?:{_HALF}|h(?:\d\d)?| ?Uhr)?) ?[-–~〜～] ?"
    rf"(\d?\d(?::\d\d{_HALF}?|{_HALF}|h(?:\d\d)?|(?:[:.]\d\d)? ?Uhr))(?![\w:])"
)
_COUNTED_RANGE = re.compile(
    rf"(?<=\d)([^\x00-\x7f{WIDE_MARKS}]{{1,2}})(?: [-–~〜～] |[-–~〜～])"
    r"(?=(?:午前|午後|[上下]午|오[전후])? ?\d)"
)
_OPEN = re.compile(
    r"\b(?:open|hours:?|days?:?|from|geöffnet|ouvert\w*|abiert\w*|apert\w*|abert\w*) $"
)
"""Words before opening hours, whose first number may be the larger one."""


def spaced(locale: Locale) -> Iterator[Rule]:
    """Rules for ranges whose dash may have spaces, unlike the minus of a difference."""
    limit = _limit(locale)
    if not locale.is_spaced:
        yield Rule(_COUNTED_RANGE, _say_named_range)
    yield Rule(_CLOCK_RANGE, _say_clock_range)
    yield Rule.of(rf"{START}{limit} [-–−] {limit}(?![./,:]?\w| ?=)", _say_spaced_range)
    yield Rule(_named_range(locale), _say_named_range)


def unspaced(locale: Locale) -> Rule:
    """The rule for a range whose dash has no spaces."""
    dash, limit = "[-–]" if locale.is_spaced else "[-–~〜～]", _limit(locale)
    return Rule.of(rf"{START}{limit}{dash}{limit}(?!(?!x\b)\w|-\w|[./,:]\d| ?=)", _say_range)


def _limit(locale: Locale) -> str:
    """Pattern of one end of a range, perhaps with a currency or a unit."""
    unit = rf"(?: ?%| ?(?:{MONEY}|[kKM]|{units_pattern(locale)})(?!\w))?"
    return rf"((?:{MONEY} ?)?{number_pattern(locale)}{unit})"


def _named_range(locale: Locale) -> re.Pattern[str]:
    """Pattern of a dash between two days of the week, or between a month and a date."""
    short = (day.capitalize() for day in locale.full_days)  # "so" is a word of German
    days = "|".join([*locale.full_days.values(), *short])
    dash = "(?: [-–~〜～] |[-–~〜～])"
    between = rf"(?<![\w-])((?<!\d)(?:{days})\b\.?){dash}(?=(?:{days})(?!\w))"
    if not locale.is_spaced:
        alone = between.replace(r"\b", "")
        return re.compile(rf"(?<![가-힣一-鿿])(?<!할 ){alone}(?!(?:{dash})(?:{days})[가-힣一-鿿])")
    shorts = f"|{abbreviations.MONTHS}" if locale.language == "en" else ""
    months = f"(?:{'|'.join(locale.months)}{shorts})"
    date = rf"(?<!\w)({months}(?:\.?(?: \d{{1,2}}\w*)?(?:,? \d{{4}})?)){dash}"
    return re.compile(rf"{between}|{date}(?=(?:\d{{1,2}}(?:er|[.º])? (?:de )?)?{months}(?!\w))")


def _say_range(match: re.Match[str], locale: Locale) -> list[Part] | None:
    digits = [re.sub(r"\D", "", part) for part in match.groups()]
    is_falling = len(digits[0]) > 2 and int(digits[0]) > int(digits[1])
    if re.fullmatch("(1[5-9]|20)\\d\\d-\\d\\d", "-".join(digits)):  # two years, as in "1998-99"
        is_falling = digits[1] <= digits[0][2:]
    is_name = is_falling or re.fullmatch(r"7\d7", match[1]) or match[0] == "50-50"
    if is_name and match[1].isdecimal():  # a name, as in "747-400" and "50-50", and no time
        return None
    at = match.start(2) - match.start()
    return [(match[1], 0), (f" {locale.symbols['–']} ", at - 1), (match[2], at)]


def _say_clock_range(match: re.Match[str], locale: Locale) -> list[Part]:
    at = match.start(2) - match.start()
    first = match[1].replace(".", ":") if match[2].endswith("Uhr") else match[1]
    return [(first, 0), (f" {locale.symbols['–']} ", len(match[1])), (match[2], at)]


def _say_spaced_range(match: re.Match[str], locale: Locale) -> list[Part] | None:
    """A range where the first number is the smaller one, as in "2 - 3 days"; else a difference."""
    before = text_before(match, 12)
    numbers = re.findall(rf"{number_pattern(locale)}", match[0])
    first, second = (value_of(number, locale) for number in numbers)
    is_open = first <= 12 and _OPEN.search(before)
    if re.search(r"[=+×÷*] $", before) or (first >= second and not is_open):
        return None
    at = match.start(2) - match.start()
    return [(match[1], 0), (f" {locale.symbols['–']} ", at - 2), (match[2], at)]


def _say_named_range(match: re.Match[str], locale: Locale) -> list[Part]:
    first = match[match.lastindex or 0]
    return [(first, 0), (f" {locale.symbols['–']} ", len(first))]
