"""Telephones, cards, accounts and codes: what is said digit by digit."""

import re
from collections.abc import Iterator

from voiceagent_tts.text import codes
from voiceagent_tts.text.locales import Locale
from voiceagent_tts.text.rules.rule import (
    CURRENCY_SIGN,
    END,
    MONEY,
    START,
    Part,
    Rule,
    text_after,
    text_before,
    units_pattern,
)

_PHONE = (
    rf"{START}(?:{{own}}\+\d{{1,3}}(?:[ .-]?\(\d{{1,4}}\))?(?:[ .-]?\d{{1,4}}){{2,6}}"
    r"|\(\d{2,5}\)[ -]?\d{2,8}(?:[ .-]\d{2,4}){0,3}"
    r"|(?:\d-)?\d{3}([-.])\d{3}\1\d{4}|\d{3} \d{3} \d{4}|\d{3}-\d{4}(?<!00)"
    rf"|0\d{{1,4}}[ /-]\d{{3,}}(?:[ -]?\d{{2,}})*|0\d(?:[ .]\d\d){{4}}"
    r"|\d{4}(?: \d{4}){3}|\d{3}-\d\d-\d{4}"
    rf"|[A-Z]{{2}}\d\d(?: ?(?=[A-Z]*\d)[\dA-Z]{{4}}){{2,7}}(?: ?\d{{1,3}})?){END}"
)
"""Numbers that are spelled: telephones, cards, accounts."""
_OWN_PHONES = {
    "en": r"[2-9]\d\d (?!1[89]|20)\d{4}(?! \d)|",
    "es": r"[6-9]\d\d \d{3} \d{3}|",
    "pt": r"9\d\d \d{3} \d{3}|(?:\d\d 9?|9)\d{4}-\d{4}|\d{5}-\d{3}"
    r"|\d{3}\.\d{3}\.\d{3}-\d\d|\d\d\.\d{3}\.\d{3}/\d{4}-\d\d|",
    "zh": r"1[3-9]\d{9}|1[3-9]\d[ -]\d{4}[ -]\d{4}|",
    "yue": r"[2-9]\d{3} \d{4}|",
    "ja": r"0[5-9]0\d{8}|",
    "ko": r"01\d{8,9}|1[568]\d\d-\d{4}|",
}


def rules(locale: Locale) -> Iterator[Rule]:
    """Rules for what is spelled in a language."""
    no_unit = rf"(?! ?(?:{MONEY}|{units_pattern(locale)})(?!\w))(?![가-힣一-鿿])"
    long_number = rf"(?<!{CURRENCY_SIGN})\d{{7,15}}(?<!00){no_unit}"
    yield Rule.of(_PHONE.replace("{own}", _OWN_PHONES.get(locale.language, "")), _say_spelled)
    yield Rule.of(rf"{START}{codes.CODE}{END}", _say_code)
    yield Rule.of(f"{START}{long_number}{END}", _say_long_number)


def _say_spelled(match: re.Match[str], locale: Locale) -> list[Part] | None:
    if sum(character.isdigit() for character in match[0]) < 7:
        return None
    parts: list[Part] = []
    is_group_end = False
    for index, character in enumerate(match[0]):
        if character.isalnum():
            gap = ", " if is_group_end else " " if parts else ""
            parts.append((gap + character, index))
            is_group_end = False
        elif character == "+":
            parts.append((locale.symbols["+"], index))
        elif parts and parts[-1][0][-1].isalnum():
            is_group_end = True
    return parts


def _say_code(match: re.Match[str], locale: Locale) -> list[Part] | None:
    before = text_before(match, 40)
    after = text_after(match, 20)
    is_code = codes.is_code(match[0], before, after, locale.language)
    return _digit_by_digit(match) if is_code else None


def _say_long_number(match: re.Match[str], locale: Locale) -> list[Part] | None:
    """Digits one by one of what counts nothing and is no part of a sum."""
    before = text_before(match, 2)
    after = text_after(match, 9)
    is_term = re.search("[+=×*] ?$", before) or re.match(r" ?[+=×*]", after)
    return None if is_term or codes.counts(after) else _digit_by_digit(match)


def _digit_by_digit(match: re.Match[str]) -> list[Part]:
    """Digits one by one; more than five are said in groups of three, with a rest of up to five."""
    parts: list[Part] = []
    for run in re.finditer(r"\d+", match[0]):
        for index in range(*run.span()):
            at, rest = index - run.start(), run.end() - index
            is_group_start = not at or (at % 3 == 0 and rest > 2 and len(run[0]) > 5)
            gap = "" if not parts else ", " if is_group_start else " "
            parts.append((gap + match[0][index], index))
    return parts
