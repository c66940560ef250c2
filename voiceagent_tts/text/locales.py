"""The words of each language for the numbers, units, months and symbols of a written text.

Number words come from num2words; units, months and plural rules from the CLDR, by Babel. The words
that neither has are listed here.
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

UNITS = {
    "km": "length-kilometer", "m": "length-meter", "cm": "length-centimeter",
    "mm": "length-millimeter", "mi": "length-mile", "ft": "length-foot", "yd": "length-yard",
    "kg": "mass-kilogram", "g": "mass-gram", "mg": "mass-milligram", "lb": "mass-pound",
    "lbs": "mass-pound", "oz": "mass-ounce", "l": "volume-liter", "L": "volume-liter",
    "ml": "volume-milliliter", "mL": "volume-milliliter", "km/h": "speed-kilometer-per-hour",
    "kph": "speed-kilometer-per-hour", "mph": "speed-mile-per-hour",
    "m/s": "speed-meter-per-second", "°C": "temperature-celsius", "℃": "temperature-celsius",
    "°F": "temperature-fahrenheit", "° C": "temperature-celsius",
    "° F": "temperature-fahrenheit", "°": "angle-degree", "℉": "temperature-fahrenheit",
    "kB": "digital-kilobyte", "KB": "digital-kilobyte", "MB": "digital-megabyte",
    "GB": "digital-gigabyte", "TB": "digital-terabyte", "W": "power-watt",
    "kW": "power-kilowatt", "MW": "power-megawatt", "kWh": "energy-kilowatt-hour",
    "kcal": "energy-kilocalorie", "Hz": "frequency-hertz", "kHz": "frequency-kilohertz",
    "MHz": "frequency-megahertz", "GHz": "frequency-gigahertz", "V": "electric-volt",
    "h": "duration-hour", "min": "duration-minute", "s": "duration-second",
    "ms": "duration-millisecond", "ha": "area-hectare", "m²": "area-square-meter",
    "km²": "area-square-kilometer", "sq ft": "area-square-foot", "gal": "volume-gallon",
    "hr": "duration-hour", "hrs": "duration-hour", "sec": "duration-second",
    "yr": "duration-year", "yrs": "duration-year", "m³": "volume-cubic-meter",
}  # fmt: skip
"""CLDR's name of each unit, by its symbol."""

CURRENCIES = {
    "US$": "$", "USD": "$", "EUR": "€", "GBP": "£", "CA$": "CAD", "C$": "CAD",
    "CAD": "CAD", "A$": "AUD", "AU$": "AUD", "AUD": "AUD", "NZ$": "NZD", "NZD": "NZD",
    "HK$": "HKD", "HKD": "HKD", "S$": "SGD", "SGD": "SGD", "MX$": "MXN", "MXN": "MXN",
    "R$": "BRL", "BRL": "BRL", "₹": "INR", "INR": "INR", "₩": "KRW", "KRW": "KRW", "CHF": "CHF",
    "JPY": "JPY", "CNY": "CNY", "SEK": "SEK", "NOK": "NOK", "DKK": "DKK", "PLN": "PLN",
    "CZK": "CZK",
}  # fmt: skip
"""The sign of our own words for a currency, or its code in the CLDR, by other ways to write it."""

Forms = tuple[str, ...]
"""A noun after 1, and after others; in Russian after 1, after 2 to 4, and after others."""


@dataclass(frozen=True, slots=True)
class SpokenWords:
    """The words of one language.

    Attributes:
        symbols: what `- – / # & = + × ÷ @ . % ° < > : ~ ± ≤ ≥ ≠ ‰ √ ^` and "per" are called, in
            this order: the minus, the dash of a range, the stroke of a fraction, and the rest.
            One more is the minus between two numbers, where it differs from a negative sign.
        point: the mark in decimal numbers.
        money: major and minor unit of each currency.
        before_minor: word before the minor unit, which may be left out.
        names_minor: whether the minor unit is named after the major one: "3 dollars and 50 cents".
        fractions: halves, thirds and quarters.
        hour: word between hours and minutes; may be empty, as the next ones.
        minute: word after minutes.
        date: parts of a date, in the order in which they are said.
        scales: large numbers by how they are written short: `Mio.=Million/Millionen`. A short form
            without a dot counts only next to a currency.
        of: word between a large number and a currency.
        periods: words after a price that are written short, as in "$5/mo".
        units: what a value is called with a unit that the CLDR lacks, or that people say otherwise.
    """

    symbols: str
    point: str
    money: dict[str, tuple[Forms, Forms]]
    fractions: str
    before_minor: str = ""
    names_minor: bool = False
    hour: str = ""
    minute: str = ""
    date: str = "{day} |{month} |{year}"
    scales: str = ""
    of: str = ""
    periods: dict[str, str] = field(default_factory=dict[str, str])
    units: dict[str, str] = field(default_factory=dict[str, str])


_ONES = {
    "de": ("eins", "ein", "eine", r"\w+(?<!byt)e$|Million$|Nachricht$|Person$|Nacht$"),
    "fr": (
        "un",
        "un",
        "une",
        "heure|minute|seconde|milliseconde|livre|once|kilocalorie|roupie|semaine|année|personne|nuit"
        "|fois|chambre|table|question|option|place",
    ),
    "es": ("uno", "un", "una", r"(?!d[ií]as?$)\w+(?:as?|ción|ciones)$|noche|ve[zc]"),
    "it": ("uno", "un", "una", r"\w+a$|notte"),
    "pt": ("um", "um", "uma", r"(?!dias?$)\w+(?:as?|ção|ções|gem|gens)$|noite|vez"),
}
"""One as it is counted, and before masculine and feminine nouns; and pattern of the latter."""
_HOURS = "한 두 세 네 다섯 여섯 일곱 여덟 아홉 열 열한 열두".split()
_COUNTS = {"zh": ("", {2: "两"}), "yue": ("", {2: "兩"}), "ko": ("시", dict(enumerate(_HOURS, 1)))}
"""Pattern of nouns, and the numbers that have words of their own before them."""
NOUNS = {
    "de": "Uhr|Stunde|Minute|Sekunde|Tag|Woche|Monat|Jahr|Person|Nacht|Nachricht|Anruf|Frage|Platz",
    "fr": "(?:heure|minute|seconde|jour|semaine|an|année|personne|nuit|chambre|table|message|appel"
    "|question|option|place)s?|mois|fois",
    "es": "(?:hora|minuto|segundo|d[ií]a|semana|año|persona|noche|mesa|mensaje|llamada|pregunta"
    "|entrada|plaza|cosa)s?|mes|meses|vez|veces|(?:habita|op)ci(?:ón|ones)",
    "it": "or[ae]|minut[oi]|second[oi]|giorn[oi]|settiman[ae]|mes[ei]|ann[oi]|person[ae]|nott[ei]"
    "|volt[ae]|camer[ae]|tavol[oi]|chiamat[ae]|domand[ae]",
    "pt": "(?:hora|minuto|segundo|dia|semana|ano|pessoa|noite|mesa|quarto|chamada|pergunta|coisa)s?"
    "|mês|meses|vez|vezes|mensage(?:m|ns)|opç(?:ão|ões)",
}
"""Common nouns with which a number agrees."""
_HOURS_OF_A_DAY = {"es": "hora", "it": "ora", "pt": "hora"}
"""The noun of hours, in languages in which a time has no word for them."""
_SYMBOLS = (*"-–/#&=+×÷@.%°<>:~±≤≥≠‰√^", "per", "−")
_FRACTIONS = ("1/2", "1/3", "2/3", "1/4", "3/4")


def _money(names: str) -> dict[str, tuple[Forms, Forms]]:
    """Currencies of a language: dollar, cent, euro, its cent, pound, penny and yen."""
    dollar, cent, euro, euro_cent, pound, penny, yen = (
        tuple(forms.split("/")) for forms in names.split("|")
    )
    return {"$": (dollar, cent), "€": (euro, euro_cent), "£": (pound, penny), "¥": (yen, ())}


_SIZES = {symbol: f"{{0}} {symbol}" for symbol in ("kB", "KB", "MB", "GB", "TB")}
"""Units that are spelled in Chinese."""
_POWERS = {"²": "{0}的平方", "³": "{0}的立方"}
_WORDS = {
    "en": SpokenWords(
        "minus|to|over|number|and|equals|plus|times|divided by|at|dot|percent|degrees"
        "|less than|greater than|to|about|plus or minus|less than or equal to"
        "|greater than or equal to|not equal to|per thousand|square root of|to the power of|per",
        "point",
        _money("dollar/dollars|cent/cents|euro/euros|cent/cents|pound/pounds|penny/pence|yen/yen"),
        "one half|one third|two thirds|one quarter|three quarters",
        before_minor="and",
        names_minor=True,
        scales="k=thousand|K=thousand|M=million|B=billion|bn=billion|tn=trillion",
        periods={"mo": "month", "wk": "week"},
    ),
    "de": SpokenWords(
        "minus|bis|durch|Nummer|und|gleich|plus|mal|geteilt durch|at|Punkt|Prozent|Grad"
        "|kleiner als|größer als|zu|etwa|plus minus|kleiner gleich|größer gleich|ungleich"
        "|Promille|Wurzel aus|hoch|pro",
        "Komma",
        _money("Dollar/Dollar|Cent/Cent|Euro/Euro|Cent/Cent|Pfund/Pfund|Penny/Pence|Yen/Yen"),
        "ein halb|ein Drittel|zwei Drittel|ein Viertel|drei Viertel",
        hour="Uhr",
        date="{ordinal} |{month} |{year}",
        scales="k=tausend|M=Million/Millionen|Mio.=Million/Millionen|Mrd.=Milliarde/Milliarden",
    ),
    "fr": SpokenWords(
        "moins|à|sur|numéro|et|égale|plus|fois|divisé par|arobase|point|pour cent|degrés"
        "|inférieur à|supérieur à|à|environ|plus ou moins|inférieur ou égal à"
        "|supérieur ou égal à|différent de|pour mille|racine de|puissance|par",
        "virgule",
        _money(
            "dollar/dollars|cent/cents|euro/euros|centime/centimes|"
            "livre/livres|penny/pence|yen/yens"
        ),
        "un demi|un tiers|deux tiers|un quart|trois quarts",
        hour="heures",
        scales="k=mille|M=million/millions|Md=milliard/milliards|Mds=milliard/milliards",
        of="de",
    ),
    "es": SpokenWords(
        "menos|a|sobre|número|y|igual a|más|por|entre|arroba|punto|por ciento|grados"
        "|menor que|mayor que|a|unos|más menos|menor o igual que|mayor o igual que"
        "|distinto de|por mil|raíz de|elevado a|por",
        "coma",
        _money(
            "dólar/dólares|centavo/centavos|euro/euros|céntimo/céntimos|"
            "libra/libras|penique/peniques|yen/yenes"
        ),
        "un medio|un tercio|dos tercios|un cuarto|tres cuartos",
        before_minor="con",
        date="{day} de |{month} de |{year}",
        scales="k=mil|M=millón/millones",
        of="de",
    ),
    "it": SpokenWords(
        "meno|a|su|numero|e|uguale a|più|per|diviso|chiocciola|punto|per cento|gradi"
        "|minore di|maggiore di|a|circa|più o meno|minore o uguale a|maggiore o uguale a"
        "|diverso da|per mille|radice di|alla|al",
        "virgola",
        _money(
            "dollaro/dollari|centesimo/centesimi|euro/euro|centesimo/centesimi|"
            "sterlina/sterline|penny/penny|yen/yen"
        ),
        "un mezzo|un terzo|due terzi|un quarto|tre quarti",
        before_minor="e",
        scales="k=mila|M=milione/milioni|mln.=milione/milioni|mld.=miliardo/miliardi",
        of="di",
    ),
    "pt": SpokenWords(
        "menos|a|sobre|número|e|igual a|mais|vezes|dividido por|arroba|ponto|por cento|graus"
        "|menor que|maior que|a|cerca de|mais ou menos|menor ou igual a|maior ou igual a"
        "|diferente de|por mil|raiz de|elevado a|por",
        "vírgula",
        _money(
            "dólar/dólares|centavo/centavos|euro/euros|cêntimo/cêntimos|"
            "libra/libras|péni/pence|iene/ienes"
        )
        | {"BRL": (("real", "reais"), ("centavo", "centavos"))},
        "um meio|um terço|dois terços|um quarto|três quartos",
        before_minor="e",
        date="{day} de |{month} de |{year}",
        scales="k=mil|M=milhão/milhões|mi=milhão/milhões|bi=bilhão/bilhões",
        of="de",
        units={"°": "{0} graus"},
    ),
    "nl": SpokenWords(
        "min|tot|op|nummer|en|is|plus|keer|gedeeld door|apenstaartje|punt|procent|graden"
        "|kleiner dan|groter dan|op|ongeveer|plus of min|kleiner dan of gelijk aan"
        "|groter dan of gelijk aan|ongelijk aan|promille|wortel van|tot de macht|per",
        "komma",
        _money("dollar/dollar|cent/cent|euro/euro|cent/cent|pond/pond|penny/pence|yen/yen"),
        "een half|een derde|twee derde|een kwart|drie kwart",
        hour="uur",
        scales="k=duizend|M=miljoen|mln.=miljoen|mld.=miljard",
        units={"°": "{0} graden"},
    ),
    "ru": SpokenWords(
        "минус|до|на|номер|и|равно|плюс|умножить на|разделить на|собака|точка|процентов|градусов"
        "|меньше|больше|к|около|плюс-минус|меньше или равно|больше или равно"
        "|не равно|промилле|корень из|в степени|в",
        "запятая",
        _money(
            "доллар/доллара/долларов|цент/цента/центов|евро/евро/евро|цент/цента/центов|"
            "фунт/фунта/фунтов|пенс/пенса/пенсов|иена/иены/иен"
        ),
        "одна вторая|одна треть|две трети|одна четверть|три четверти",
        names_minor=True,
        scales="тыс.=тысяча/тысячи/тысяч|млн.=миллион/миллиона/миллионов"
        "|млрд.=миллиард/миллиарда/миллиардов",
    ),
    "zh": SpokenWords(
        "负|到|分之|第|和|等于|加|乘以|除以|艾特|点|百分之|度|小于|大于|比|约|正负|小于等于|大于等于"
        "|不等于|千分之|根号|的幂|每|减",
        "点",
        _money("美元|美分|欧元|欧分|英镑|便士|元"),
        "二分之一|三分之一|三分之二|四分之一|四分之三",
        names_minor=True,
        hour="点",
        minute="分",
        date="{year}年|{month}|{day}日",
        units={"%": "百分之{0}", "‰": "千分之{0}", "°": "{0}度", **_SIZES, **_POWERS},
    ),
    "yue": SpokenWords(
        "負|到|分之|第|同|等於|加|乘以|除以|at|點|百分之|度|細過|大過|比|大約|正負|細過等於|大過等於"
        "|唔等於|千分之|根號|嘅次方|每|減",
        "點",
        _money("美元|美分|歐元|歐分|英鎊|便士|元"),
        "二分之一|三分之一|三分之二|四分之一|四分之三",
        names_minor=True,
        hour="點",
        minute="分",
        date="{year}年|{month}|{day}日",
        units={"%": "百分之{0}", "‰": "千分之{0}", "°": "{0}度", **_SIZES, **_POWERS},
    ),
    "ja": SpokenWords(
        "マイナス|から|分の|ナンバー|アンド|イコール|プラス|かける|割る|アットマーク|ドット"
        "|パーセント|度|小なり|大なり|対|約|プラスマイナス|以下|以上|ノットイコール|パーミル|ルート"
        "|の累乗|毎|引く",
        "点",
        _money("ドル|セント|ユーロ|セント|ポンド|ペンス|円"),
        "2分の1|3分の1|3分の2|4分の1|4分の3",
        names_minor=True,
        hour="時",
        minute="分",
        date="{year}年|{month}|{day}日",
        units={
            "%": "{0}パーセント",
            "‰": "{0}パーミル",
            "°": "{0}度",
            "°C": "{0}度",
            "℃": "{0}度",
            "²": "{0}の2乗",
            "³": "{0}の3乗",
        },
    ),
    "ko": SpokenWords(
        "마이너스|에서|분의|번호|앤드|는|더하기|곱하기|나누기|골뱅이|점|퍼센트|도|보다 작은|보다 큰"
        "|대|약|플러스마이너스|이하|이상|같지 않은|퍼밀|루트|의 제곱|당|빼기",
        "점",
        _money("달러|센트|유로|센트|파운드|펜스|엔") | {"KRW": (("원",), ())},
        "2분의 1|3분의 1|3분의 2|4분의 1|4분의 3",
        names_minor=True,
        hour="시",
        minute="분",
        date="{year}년 |{month} |{day}일",
        units={
            "%": "{0}퍼센트",
            "‰": "{0}퍼밀",
            "°": "{0}도",
            "°C": "{0}도",
            "℃": "{0}도",
            "²": "{0}의 제곱",
            "³": "{0}의 세제곱",
        },
    ),
}


class Locale:
    """The words of one language.

    Args:
        language: one of `LANGUAGES`, perhaps with a region.

    Attributes:
        words: the words of the language that this module lists.
        language: its code without the region.
        is_american: whether dates are written with the month first.
        decimal: mark before decimals.
        group: mark between groups of three digits; a space stands for every white space.
        is_regional: whether the region writes both marks differently from its language.
        symbols: what a symbol is called.
        point: what the mark of decimals is called.
        fractions: what fractions are called, by "1/2".
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
        self.words = words = _WORDS[code]
        self._cldr = Cldr.parse(code)
        self._numbers = _converter(language)
        self.is_spaced = code not in ("zh", "yue", "ja", "ko")
        self.writes_numbers = self._numbers is not None
        self.is_american = language in ("en", "en-us")
        region = self._region(language)
        self.decimal = get_decimal_symbol(region)
        self.group = " " if (mark := get_group_symbol(region)).isspace() else mark.replace("’", "'")
        names = words.symbols.split("|")
        self.symbols: dict[str, str] = dict(zip(_SYMBOLS, [*names, names[0]], strict=False))
        self.is_regional = self.decimal != get_decimal_symbol(self._cldr)
        self.point = self.symbols["."] if self.is_regional and code == "es" else words.point
        self.fractions: dict[str, str] = dict(
            zip(_FRACTIONS, words.fractions.split("|"), strict=True)
        )
        self.date = self._date().split("|")
        self.scales = dict(each.split("=") for each in words.scales.split("|") if each)
        self.scales |= {form: forms for forms in self.scales.values() for form in forms.split("/")}
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

    def _date(self) -> str:
        if self.language != "en":
            return self.words.date
        if self.is_american:
            return "{month} |{ordinal}, |{year}"
        return "the {ordinal} of |{month} |{year}"

    def cardinal(self, number: int) -> str:
        """A number of at least 0 in words."""
        words = cast("str", self._numbers.to_cardinal(number)).replace(",", "")
        return words.replace(" and ", " ") if self.language == "en" else words

    def ordinal(self, number: int) -> str:
        """A place in an order, in words."""
        return cast("str", self._numbers.to_ordinal(number)).replace(",", "")

    def year(self, number: int) -> str:
        """A year in words."""
        return cast("str", self._numbers.to_year(number)).replace(",", "")

    def counted(self, number: int, noun: str) -> str | None:
        """A number in words that agree with its noun; None if it is the same before every noun."""
        own_nouns, own = _COUNTS.get(self.language, ("", {}))
        if noun and number in own and re.match(own_nouns, noun):
            return own[number]
        one, masculine, feminine, nouns = _ONES.get(self.language, ("",) * 4)
        if not one or not noun or (self.language in ("de", "it") and number > 1):
            return None
        words = plain = self.cardinal(number)
        is_feminine = re.match(nouns, noun.partition(" ")[0])
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
        return self.counted(hour, noun or _HOURS_OF_A_DAY.get(self.language, "")) or str(hour)

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
        return self._form(tuple(self.scales[symbol].split("/")), amount)

    def minor_currency(self, symbol: str, amount: float) -> str | None:
        """Name of a currency's minor unit after an amount of it; None if it has none."""
        sign = CURRENCIES.get(symbol, symbol)
        _, forms = self.words.money.get("$" if symbol.endswith("$") else sign, ((), ()))
        return self._form(forms, amount) if forms else None

    @property
    def units(self) -> tuple[str, ...]:
        """Symbols of the units that `unit` knows."""
        return (*UNITS, *(self.words.units.keys() - UNITS.keys()))

    def unit(self, symbol: str, value: float) -> tuple[str, str] | None:
        """What is said before and after a value in one of `units`; None if CLDR lacks it."""
        own = self.words.units.get(symbol)
        if own is not None:
            before, _, after = own.partition("{0}")
            return before, after.strip()
        name = UNITS[symbol]
        text = format_unit(value, name, locale=self._cldr)
        number = format_decimal(value, locale=self._cldr)
        if name in text or number not in text:
            return None
        before, _, after = text.partition(number)
        return before.strip(), after.strip()

    def _form(self, forms: Forms, amount: float) -> str:
        if len(forms) == 1:
            return forms[0]
        kinds = ("one", "other") if len(forms) == 2 else ("one", "few", "many")
        kind = self._cldr.plural_form(amount)
        return forms[kinds.index(kind)] if kind in kinds else forms[-1]


LANGUAGES = tuple(_WORDS)
"""Languages with words of their own here."""


def _converter(language: str) -> Any:
    base, _, region = language.partition("-")
    converters = cast("dict[str, Any]", num2words.CONVERTER_CLASSES)  # pyright: ignore
    return converters.get(f"{base}_{region.upper()}") or converters.get(base)


@lru_cache(maxsize=64)
def locale_of(language: str) -> Locale | None:
    """The words of a language; None if it is not among `LANGUAGES`. The first call takes 30 ms."""
    return Locale(language) if language.partition("-")[0] in _WORDS else None
