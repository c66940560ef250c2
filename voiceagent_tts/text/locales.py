"""The words of each language for the numbers, units, months and symbols of a written text.

Number words come from num2words; units, months and plural rules from the CLDR, by Babel. The words
that neither has are in `text/languages`.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import num2words  # pyright: ignore[reportMissingTypeStubs]
from babel import Locale as Cldr
from babel import UnknownLocaleError
from babel.numbers import format_decimal, get_currency_name, get_decimal_symbol, get_group_symbol
from babel.units import format_unit

from voiceagent_tts.text.language_files import read_file

LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "ru", "zh", "yue", "ja", "ko", "hi")
"""Languages with a file of words."""


def _by_sign(kind: str) -> dict[str, str]:
    return {sign: name for name, signs in read_file("units")[kind].items() for sign in signs}


UNITS = _by_sign("units")
"""CLDR's name of each unit, by its symbol."""
CURRENCIES = _by_sign("currencies")
"""The sign of our own words for a currency, or its code in the CLDR, by other ways to write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenWords:
    """The file of one language.

    The forms of a noun are joined by strokes: after 1, and after others; in Russian after 1, after
    2 to 4, and after others. Lists of patterns are alternatives.

    Attributes:
        point: the mark in decimal numbers.
        date: parts of a date, in the order in which they are said.
        symbols: what signs are called: `-` as a negative sign, `–` in a range, `/` in a fraction,
            and `−` between two numbers, where it differs from the negative sign. In `^`, `{0}`
            stands for the power, if it is not said at the end.
        address_signs: what signs are called in mail and web addresses.
        fractions: halves, thirds and quarters.
        money: forms of the major and the minor unit of each currency, which may lack a minor one.
        code_cues: patterns of words before a number that is said digit by digit.
        before_minor: word before the minor unit, which may be left out.
        names_minor: whether the minor unit is named after the major one: "3 dollars and 50 cents".
        hour: word between hours and minutes; may be empty, as the next one.
        minute: word after minutes.
        hour_noun: the noun of hours, where a time has no word for them.
        one: one as it is counted, and before masculine and feminine nouns.
        strokes: words that are written short with a stroke, such as "w/o".
        feminine: patterns of feminine nouns.
        nouns: patterns of common nouns with which a number agrees.
        own_counts: words for numbers before nouns, where they have words of their own; in Korean
            before hours, and in Japanese with their counters.
        counters: patterns of numbers with words of their own before the counters of Chinese,
            Japanese and Korean; in Japanese with their counters.
        scales: forms of large numbers by how they are written short. A short form without a dot
            counts only next to a currency.
        of: word between a large number and a currency.
        periods: words after a price that are written short, as in "$5/mo".
        units: what a value is called with a unit that the CLDR lacks, or that people say otherwise,
            perhaps with two forms.
        times: words after the number of "3x" and of "24h/24".
        ordinals: pattern of an ordinal in digits, and of its ending.
        numerals: pattern of a Roman numeral (`{roman}`, group 2) after names and counted nouns.
        numeral_mark: the mark after its digits.
        rulers: pattern of names before a Roman numeral that is said as an ordinal.
        year_cues: patterns of words before a year, beside the names of months.
        phones: patterns of telephone numbers and the like, beside those of all languages.
    """

    point: str
    date: list[str]
    symbols: dict[str, str]
    address_signs: dict[str, str]
    fractions: dict[str, str]
    money: dict[str, list[str]]
    code_cues: list[str]
    before_minor: str = ""
    names_minor: bool = False
    hour: str = ""
    minute: str = ""
    hour_noun: str = ""
    one: tuple[str, ...] = ()
    strokes: dict[str, str] = field(default_factory=dict[str, str])
    feminine: tuple[str, ...] = ()
    nouns: tuple[str, ...] = ()
    own_counts: dict[str, str] = field(default_factory=dict[str, str])
    counters: tuple[str, ...] = ()
    scales: dict[str, str] = field(default_factory=dict[str, str])
    of: str = ""
    periods: dict[str, str] = field(default_factory=dict[str, str])
    units: dict[str, str] = field(default_factory=dict[str, str])
    times: dict[str, str] = field(default_factory=dict[str, str])
    ordinals: str = ""
    numerals: str = ""
    numeral_mark: str = ""
    rulers: str = ""
    year_cues: tuple[str, ...] = ()
    phones: tuple[str, ...] = ()


class Locale:
    """The words of one language.

    Args:
        language: one of `LANGUAGES`, perhaps with a region.

    Attributes:
        words: the words in the language's file.
        language: its code without the region.
        is_american: whether dates are written with the month first.
        decimal: mark before decimals.
        group: mark between groups of three digits; a space stands for every white space.
        is_regional: whether the region writes both marks differently from its language.
        symbols: what a symbol is called.
        point: what the mark of decimals is called.
        date: parts of a date as it is said, with `{day}`, `{ordinal}`, `{month}` and `{year}`.
        scales: large numbers by how they are written short; a dot at the end may be left out.
        is_spaced: whether a space parts words from numbers. Without it, only letters from A to Z
            next to a number make it a part of a name.
        writes_numbers: whether `cardinal` has words for numbers.
        months: names of the months, from January.
        full_days: names of the days of a week, by how they are written short, in small letters.
    """

    def __init__(self, language: str) -> None:
        self.language = code = language.partition("-")[0]
        self.words = words = SpokenWords(**read_file(code))
        self._cldr = Cldr.parse(code)
        self._numbers = _converter(language)
        self.is_spaced = code not in ("zh", "yue", "ja", "ko")
        self.writes_numbers = self._numbers is not None
        self.is_american = language in ("en", "en-us")
        region = self._region(language)
        self.decimal = get_decimal_symbol(region)
        self.group = " " if (mark := get_group_symbol(region)).isspace() else mark.replace("’", "'")
        self.symbols = {"−": words.symbols["-"]} | words.symbols
        self.is_regional = self.decimal != get_decimal_symbol(self._cldr)
        self.point = self.symbols["."] if self.is_regional and code == "es" else words.point
        is_british = code == "en" and not self.is_american
        self.date = ["the {ordinal} of ", "{month} ", "{year}"] if is_british else words.date
        spoken = {form: forms for forms in words.scales.values() for form in forms.split("/")}
        self.scales = words.scales | spoken
        months = cast("dict[int, str]", self._cldr.months["format"]["wide"])
        self.months = tuple(months[number] for number in range(1, 13))
        short, wide = (self._cldr.days["format"][width] for width in ("abbreviated", "wide"))
        self.full_days = {short[day].strip(".").casefold(): wide[day] for day in range(7)}

    def _region(self, language: str) -> Cldr:
        """A region whose decimals have a point, as in Mexico and Switzerland; else the language."""
        try:
            region = Cldr.parse(language, sep="-")
        except (ValueError, UnknownLocaleError):
            return self._cldr
        return region if get_decimal_symbol(region) == "." else self._cldr

    def cardinal(self, number: int) -> str:
        """A number of at least 0 in words."""
        words = cast("str", self._numbers.to_cardinal(number)).replace(",", "")
        return words.replace(" and ", " ") if self.language == "en" else words

    def ordinal(self, number: int) -> str:
        """A place in an order, in words."""
        words = cast("str", self._numbers.to_ordinal(number)).replace(",", "")
        return words.replace(" and ", " ") if self.language == "en" else words

    def year(self, number: int) -> str:
        """A year in words."""
        return cast("str", self._numbers.to_year(number)).replace(",", "")

    def counted(self, number: int, noun: str) -> str | None:
        """A number in words that agree with its noun; None if it is the same before every noun."""
        own = self.words.own_counts.get(str(number))
        if noun and own and (self.language != "ko" or noun.startswith(self.words.hour)):
            return own
        if not self.words.one or not noun or (self.language in ("de", "it") and number > 1):
            return None
        one, masculine, feminine = self.words.one
        words = plain = self.cardinal(number)
        is_feminine = re.match("|".join(self.words.feminine), noun.partition(" ")[0])
        if is_feminine and self.language in ("es", "pt"):  # "doscientas", "duzentas", "duas"
            words = re.sub(r"entos\b", "entas", re.sub(r"\bdois$", "duas", words))
        if not words.endswith(one):
            return words if words != plain else None
        stem = words.removesuffix(one)
        if is_feminine:
            return stem + feminine
        return stem + ("ún" if stem.endswith("veinti") else masculine)

    def hour_of_day(self, hour: int) -> str:
        """An hour before its minutes, in digits unless it agrees with a noun, as in "la una"."""
        noun = self.words.hour.removesuffix("s") if hour < 2 else self.words.hour
        return self.counted(hour, noun or self.words.hour_noun) or str(hour)

    def part(self, upper: int, lower: int) -> str | None:
        """A fraction such as "three fifths" in languages that say an ordinal; else None."""
        if not self.is_spaced:
            return f"{lower}{self.symbols['/']}{upper}"
        if not (upper < lower and 4 < lower <= 10):
            return None
        match self.language:
            case "de":
                noun = f"{self.ordinal(lower).capitalize()}l"
            case "fr" | "es" | "pt":
                noun = self.ordinal(lower) + ("s" if upper > 1 else "")
            case "it":
                noun = self.ordinal(lower)[:-1] + ("i" if upper > 1 else "o")
            case _:
                return None
        return f"{self.counted(upper, noun) or upper} {noun}"

    def currency(self, symbol: str, amount: float) -> str:
        """Name of a currency after an amount of it."""
        sign = CURRENCIES.get(symbol, symbol)
        if sign in self.words.money:
            return self._form(self.words.money[sign][0], amount)
        return get_currency_name(sign, count=amount, locale=self._cldr)

    def scale(self, symbol: str, amount: float) -> str:
        """Name of one of `scales` after an amount of it."""
        return self._form(self.scales[symbol], amount)

    def minor_currency(self, symbol: str, amount: float) -> str | None:
        """Name of a currency's minor unit after an amount of it; None if it has none."""
        sign = CURRENCIES.get(symbol, symbol)
        _, *minor = self.words.money.get("$" if symbol.endswith("$") else sign, [""])
        return self._form(minor[0], amount) if minor else None

    @property
    def units(self) -> tuple[str, ...]:
        """Symbols of the units that `unit` knows."""
        return (*UNITS, *(self.words.units.keys() - UNITS.keys()))

    def unit(self, symbol: str, value: float) -> tuple[str, str] | None:
        """What is said before and after a value in one of `units`; None if CLDR lacks it."""
        own = self.words.units.get(symbol)
        if own is not None:
            before, _, after = own.partition("{0}")
            return before, self._form(after.strip(), value)
        name = UNITS[symbol]
        text = format_unit(value, name, locale=self._cldr)
        number = format_decimal(value, locale=self._cldr)
        if name in text or number not in text:
            return None
        before, _, after = text.partition(number)
        return before.strip(), after.strip()

    def _form(self, joined: str, amount: float) -> str:
        forms = joined.split("/")
        if len(forms) == 1:
            return joined
        kind = self._cldr.plural_form(amount)
        if len(forms) == 2:
            return forms[kind != "one"]
        return forms[["one", "few", "many"].index("few" if kind == "other" else kind)]


def _converter(language: str) -> Any:
    base, _, region = language.partition("-")
    converters = cast("dict[str, Any]", num2words.CONVERTER_CLASSES)  # pyright: ignore
    return converters.get(f"{base}_{region.upper()}") or converters.get(base)


@lru_cache(maxsize=64)
def locale_of(language: str) -> Locale | None:
    """The words of a language; None if it is not among `LANGUAGES`. The first call takes 30 ms."""
    return Locale(language) if language.partition("-")[0] in LANGUAGES else None
