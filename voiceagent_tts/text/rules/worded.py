"""The last rules: numbers and symbols in words, for voices that do not read them."""

import re
import unicodedata
from collections.abc import Iterator

from voiceagent_tts.text.locales import Locale
from voiceagent_tts.text.rules.rule import (
    Part,
    Rule,
    apart,
    number_pattern,
    say_nothing,
    text_after,
)
from voiceagent_tts.text.rules.signs import SYMBOLS, say_symbol, say_symbols

_GREEK = re.compile("(?<![Ͱ-Ͽἀ-῿])[Α-ΡΣ-Ωα-ρσ-ω](?![Ͱ-Ͽἀ-῿])")
"""A letter that is a sign, as in "5Ω", and no part of a Greek word."""


def for_voices_that_read_digits(locale: Locale) -> Iterator[Rule]:
    """Rules for numbers with the marks of a region, where the voice reads those of the language."""
    if locale.is_regional:
        yield Rule.of(rf"(?<![\w.,]){number_pattern(locale)}", _say_regional)


def unspaced() -> Iterator[Rule]:
    """Rules for voices that read digits only, in languages without spaces around numbers."""
    yield Rule.of(r"(?<![\d.])\d+\.\d+(?![\d.]*\d)", _say_decimals)
    yield Rule.of(SYMBOLS.format(more=""), say_symbols)
    yield Rule.of(r"(?<=\d) (?=[一-鿿])", say_nothing)  # "14 時" is said as "14時"


def for_other_voices(locale: Locale) -> Iterator[Rule]:
    """Rules for voices that read neither digits nor symbols."""
    yield Rule.of("[™®©]", say_nothing)
    if locale.language == "en":
        yield Rule(_GREEK, _say_greek)
    yield Rule.of(SYMBOLS.format(more="%°@"), say_symbols)
    yield Rule.of(r"(≈) ?", say_symbol)
    yield Rule.of(r"(?<![\d.])\d+(?:\.\d+)+(?![\d.]*\d)", _say_dotted)
    yield Rule.of(r"(?<![\w.,])\.(\d+)(?!\w|[.,]\d)", _say_leading_point)
    yield Rule.of(rf"(?<!\d){number_pattern(locale)}", _say_number)
    yield Rule.of(r"\d+", lambda match, locale: [(apart(_digits(match[0], locale), match), 0)])


def _say_greek(match: re.Match[str], locale: Locale) -> list[Part]:
    """The name of a Greek letter; Unicode writes one of them without its "b"."""
    name = unicodedata.name(match[0]).split()[-1].lower().replace("lamda", "lambda")
    return [(apart(name, match), 0)]


def _say_regional(match: re.Match[str], locale: Locale) -> list[Part]:
    """A number for a voice that expects the marks of the language, not of its region."""
    number = match[0].replace(locale.group, "")
    return [(number.replace(locale.decimal, f" {locale.point} "), 0)]


def _say_decimals(match: re.Match[str], locale: Locale) -> list[Part]:
    whole, _, decimals = match[0].partition(".")
    at = len(whole)
    return [(whole, 0), (f" {locale.point} ", at), (" ".join(decimals), at + 1)]


def _say_dotted(match: re.Match[str], locale: Locale) -> list[Part] | None:
    """A version or an address: its numbers are spelled, so that no two of them are decimals."""
    if locale.group == "." and re.fullmatch(r"\d{1,3}(?:\.\d{3})+", match[0]):
        return None
    if locale.decimal == "." and match[0].count(".") == 1:
        return None
    name = f" {locale.point if locale.language == 'en' else locale.symbols['.']} "
    places = [*re.finditer(r"\d+|\.", match[0])]
    said = [name if each[0] == "." else _whole(each[0], locale) for each in places]
    said[0] = apart(said[0], match)
    return [(text, each.start()) for text, each in zip(said, places, strict=True)]


def _whole(digits: str, locale: Locale) -> str:
    """A number in words; one that begins with a zero is said digit by digit."""
    is_spelled = digits.startswith("0") or len(digits) > 12
    return _digits(digits, locale) if is_spelled else locale.cardinal(int(digits))


def _say_leading_point(match: re.Match[str], locale: Locale) -> list[Part]:
    """Decimals without a number before them, as in ".5"."""
    return [(f"{locale.point} ", 0), (_digits(match[1], locale), 1)]


def _say_number(match: re.Match[str], locale: Locale) -> list[Part] | None:
    whole, _, decimals = match[0].replace(locale.group, "").partition(locale.decimal)
    if (len(whole) > 1 and whole.startswith("0")) or len(whole) > 12:
        return None
    said = locale.cardinal(int(whole))
    if said == "eins" and re.match(" [A-ZÄÖÜ]", text_after(match, 2)):
        said = "ein"
    if decimals:
        said += f" {locale.point} {_digits(decimals, locale)}"
    return [(apart(said, match), 0)]


def _digits(digits: str, locale: Locale) -> str:
    return " ".join(locale.cardinal(int(digit)) for digit in digits)
