"""Signs of arithmetic, such as a minus in place of a hyphen, of addresses, and other symbols."""

import re
import unicodedata
from collections.abc import Iterator

from voiceagent_tts.text.locales import Locale
from voiceagent_tts.text.rules.rule import (
    MONEY,
    START,
    WIDE_MARKS,
    Part,
    Rule,
    apart,
    text_after,
    text_before,
)

_RATIO = re.compile(rf"{START}(\d{{1,4}}):(\d{{1,4}})(?![\w:]|[.,]\d)")
_POWER = r"(?:(?<=[\d)])|(?<=\b[A-Za-z]))(?:⁻?[²³¹⁰⁴-⁹]+|\^((?:{minus} )?\d{{1,4}})(?!\w|\.\d))"
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_SITE = re.compile(
    r"(?<![\w@.-])(?P<www>www\.)?[\w-]+(?:\.[\w-]+)*\.(?:(?:com|org|net|io|ai|dev|app|gov|edu|eu"
    r"|co\.uk|uk|de|fr|es|it|pt|br|nl|ru|ch|ca|au|mx|jp|kr|cn|co|tv|xyz|info|me|biz)"
    r"|(?:at|be|us|shop|store|online)(?(www)|(?=/|[.!?]*(?:\s*\Z|(?<=[.!?])\s))))"
    r"(?:/[\w./?=&%#~+-]*\w)?(?![\w.]\w|\w)"
)
"""An address without "http". A domain that is a common word may begin a sentence whose space is
missing, as in "the end.be careful": it needs "www.", a path or the end of the sentence."""


def negative(locale: Locale) -> Iterator[Rule]:
    """Rules for a minus before a number."""
    yield Rule.of(r"(?<=[\d)%°€]) [-−] (?=[$€£¥]?[\d(−-])", _say_minus)
    yield Rule.of(rf"(?<![\w.,])(?<!\d )({MONEY}) ?[-−–](?=[.,]?\d)", _say_minus_first)
    yield Rule.of(_minus(locale) + rf"(?=(?:{MONEY} ?)?[.,]?[\d¼-¾⅐-⅞√])", _say_minus)


def _minus(locale: Locale) -> str:
    """Pattern of a negative sign: not of a hyphen, nor of the dash of a range such as "3月-5月"."""
    if locale.is_spaced:
        return r"(?<![^\s(\[\"'“‘=:×÷*^<>≤≥±])(?:[-−]|(?<!\d )–)"
    unit = rf"[^\x00-\x7f{WIDE_MARKS}]"
    return rf"(?<![A-Za-z0-9)\]%°])(?<!\d{unit})(?<!\d{unit}{{2}})[-−–]"


def formulas(locale: Locale) -> Iterator[Rule]:
    """Rules for differences, powers and other signs of formulas."""
    yield Rule.of(_POWER.format(minus=locale.symbols["-"]), _say_power)
    yield from _FORMULAS


def times(locale: Locale) -> Iterator[Rule]:
    """Rules for "3x", "24h/24" and, with spaces, "3 : 4"."""
    if locale.words.times:
        yield Rule.of(rf"{START}(\d+)(x(?!\w)| ?[a-z]/(?=\d))", _say_times)
    if locale.language != "en":
        yield Rule.of(r"(?<=\d) : (?=\d)", lambda _, locale: [(f" {locale.symbols['÷']} ", 1)])


def _say_narrow(match: re.Match[str], locale: Locale) -> list[Part]:
    return [(unicodedata.normalize("NFKC", match[0]), 0)]


def _say_ratio(match: re.Match[str], locale: Locale) -> list[Part]:
    at = match.start(2) - match.start()
    return [(match[1], 0), (f" {locale.symbols[':']} ", at - 1), (match[2], at)]


def _say_minus(match: re.Match[str], locale: Locale) -> list[Part]:
    before = text_before(match, 1)
    gap = " " if before.isdigit() or before == ")" or match[0].startswith(" ") else ""
    return [(f"{gap}{locale.symbols['−' if gap else '-']} ", len(match[0]) // 2)]


def _say_minus_first(match: re.Match[str], locale: Locale) -> list[Part]:
    """A negative price whose sign follows its currency: "$-5"."""
    return [(f"{locale.symbols['-']} {match[1]}", 0)]


def _say_power(match: re.Match[str], locale: Locale) -> list[Part]:
    """A power; a 1 refers to a footnote, and is not said."""
    written = unicodedata.normalize("NFKC", match[0]).replace("−", f"{locale.symbols['-']} ")
    power = match[1] or written
    if written == "1":
        return []
    after = " " if text_after(match, 1).isalnum() else ""
    own = locale.words.units.get({"2": "²", "3": "³"}.get(power, ""))
    if own or "{0}" in locale.symbols["^"]:
        said = own.format("") if own else locale.symbols["^"].format(power)
        return [(said + after, 0)]
    if locale.language == "en" and power in ("2", "3"):
        said = "squared" if power == "2" else "cubed"
    else:
        said = f"{locale.symbols['^']} {power}"
    return [(f" {said}{after}", 0)]


def _say_times(match: re.Match[str], locale: Locale) -> list[Part] | None:
    said = locale.words.times.get(match[2].strip())
    at = match.end(1) - match.start()
    return [(match[1], 0), (f" {apart(said, match)}", at)] if said else None


def _say_address(match: re.Match[str], locale: Locale) -> list[Part]:
    names = {sign: locale.symbols[sign] for sign in "@."} | locale.words.address_signs
    letters = len("www") if match[0].startswith("www.") else 0  # a network reads it as a word
    return [
        (f" {names[character]} " if character in names else character, index)
        if index >= letters
        else (f"{character} " if index < letters - 1 else character, index)
        for index, character in enumerate(match[0])
    ]


def say_symbol(match: re.Match[str], locale: Locale) -> list[Part]:
    """The name of a sign: of the last group of a match, or of all of it."""
    sign = match[match.lastindex or 0].replace("≈", "~")
    return [(apart(locale.symbols[sign].replace("{0}", ""), match), 0)]


def say_symbols(match: re.Match[str], locale: Locale) -> list[Part]:
    """The names of signs that follow each other; of two that are a comparison, one name."""
    signs = re.sub("[<>!]=", lambda pair: _COMPARISONS[pair[0]], match[0])
    return [(apart(" ".join(locale.symbols[sign] for sign in signs), match), 0)]


def narrow(locale: Locale) -> Rule:
    """The rule for signs as wide as a Chinese character; such a comma groups digits in Japanese."""
    group = r"|，(?=\d{3}(?!\d))" if locale.language == "ja" else ""
    return Rule.of(rf"(?<=\d)(?:[：．／](?=\d){group})|＃(?=\d)", _say_narrow)


_COMPARISONS = {"<=": "≤", ">=": "≥", "!=": "≠"}
SYMBOLS = r"(?:!=|[&=+×÷<>±≤≥≠√{more}])+"
"""Pattern of what `say_symbols` reads, with `more` signs."""
RATIO = Rule(_RATIO, _say_ratio)
_FORMULAS = (
    Rule.of(r"(?<=\b[b-zB-Z0-9]) [-−] (?=[b-zB-Z0-9]\b)", _say_minus),
    Rule.of(r"(?<=\d) – (?=\d+(?: ?=|[.!?,;)](?!\d)|$))", _say_minus),
    Rule.of(r"(?<=\d)[-–](?=\d+ ?=)|(?<=[\d)])−(?=[\d(])", _say_minus),
    Rule.of(r"(?:(?<==)|(?<== ))[-−](?=[A-Za-z(])", _say_minus),
    Rule.of(r"(?<![\w~/])(~) ?(?=[\d.$€£¥])|(?<=[\w)])(\^)(?=[\w(])", say_symbol),
    Rule.of(r"(?<=\d) ?(‰)", say_symbol),
)
ADDRESSES = (Rule(_MAIL, _say_address), Rule(_SITE, _say_address))
NUMBER_SIGN = Rule.of(
    r"(?<!\w)(?:#|(?:No\.|Nr\.|[Nn]\.?[º°]|№) ?)(?=\d)",
    lambda _, locale: [(f"{locale.symbols['#']} ", 0)],
)
