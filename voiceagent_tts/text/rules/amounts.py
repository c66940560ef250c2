"""Prices, large numbers, fractions, units and what is counted."""

import re
import unicodedata
from collections.abc import Iterator

from voiceagent_tts.text.locales import UNITS, Locale
from voiceagent_tts.text.rules import dates
from voiceagent_tts.text.rules.rule import (
    END,
    MONEY,
    START,
    Part,
    Rule,
    apart,
    counted,
    last_dot,
    number_pattern,
    say_nothing,
    text_after,
    text_before,
    units_pattern,
    value_of,
)

_FRACTION = re.compile(rf"{START}(?:(\d+) )?(\d{{1,4}})/(\d{{1,4}}){END}")
_SINGLE_FRACTION = re.compile(r"(?:(?<![\w.,/])(\d{1,4}) ?)?([¼-¾⅐-⅞])")
_FEET = re.compile(r"(?<![\w.,])(\d)['’′] ?(\d{1,2})[\"”″]")
_FEET_OR_INCHES = re.compile(
    r"(?<![\w.,\"”'’])(\d{1,3}(?:\.\d+)?)"
    r"(?:[\"”″](?!\w| (?:I|we|you|he|she|they|said|says|asked)\b)"
    r"|(['’′])(?= (?:tall|long|wide|high|deep|x)\b))"
    r"(?= ?((?:tall|long|wide|high|deep|x)\b)?(\w?))"
)
_BEFORE_AMOUNT = re.compile(r"\b(?:an?|another|each|every|the|your|this|that|our) $", re.IGNORECASE)
_NOUN = re.compile(
    r" (?:gift|fee|credit|deposit|charge|refund|bill|discount|coupon|voucher|payment|plan|balance"
    r"|minimum|limit|round|deal|copay|(?:run|walk|race|bag|call|flight|drive|hike|radius|delay)\b)"
)
"""Nouns that an amount may describe."""
_LAKHS = re.compile(r"(?<![\w.,])\d{1,2}(?:,\d\d)+,\d{3}(?!\d|,\d)")
"""A number with the groups of India, as in "1,50,000", or numbers in a list: "22,80,443"."""
_BEFORE_LAKHS = re.compile(r"(?:₹|\b(?:Rs\.?|INR|रु\.?)) ?$")
_AFTER_LAKHS = re.compile(r" ?(?:₹|(?:Rs|INR|[Rr]upees?|[Ll]akhs?|[Cc]rores?)\b|रु)")
_MOST_SPOONS = 20
"""More "TL" are Turkish liras and no German teaspoons."""
_PER = r"(?P<per>(?: ?/ ?[^\W\d_]+)*)"
"""The unit of a price, as in "$5/user/month"."""
_AMOUNT_END = r"(?![\w/²³])(?![.,]\d)"
_NO_CENTS = r"(?<=\d),[-–—](?= ?(?:{money})|[\s.,;:!?)]|$)"
"""The dash for cents of a whole price, as in "5,– €"."""

_ONES = ["", *"한 두 세 네 다섯 여섯 일곱 여덟 아홉".split()]
_TENS = ["", *"열 스물 서른 마흔 쉰 예순 일흔 여든 아흔".split()]
_KOREAN = {str(number): _TENS[number // 10] + _ONES[number % 10] for number in range(1, 100)}


def prices(locale: Locale) -> Iterator[Rule]:
    """Rules for money, and for large numbers that are written short: "$5M", "5 Mio. €"."""
    if locale.group == ",":
        yield Rule(_LAKHS, _say_lakhs)
    number, sign = number_pattern(locale), f"(?P<sign>{MONEY})"
    amount = rf"(?P<amount>{number}|{re.escape(locale.decimal)}\d\d?(?!\d)|\d{{1,6}}[.,]\d\d(?!\d))"
    if locale.decimal == ",":
        yield Rule.of(_NO_CENTS.format(money=MONEY), say_nothing)
    yield from _large_numbers(locale)
    yield Rule.of(rf"(?<![\w.,]){sign} ?{amount}{_PER}{_AMOUNT_END}", _say_money)
    yield Rule.of(rf"(?<![\w.,]){amount} ?{sign}{_PER}(?!\w)", _say_money)
    yield Rule.of(rf"(?<![\w.,])({number}) ?¢{_PER}", _say_cents)
    yield Rule.of(
        r"[€£¥]|(?<![^\s(])\$(?![^\s).,;:!?])",
        lambda match, locale: [(apart(locale.currency(match[0], 5), match), 0)],
    )


def _say_lakhs(match: re.Match[str], locale: Locale) -> list[Part]:
    """A number of India where something tells it from a list, whose numbers are said apart."""
    is_indian = (
        locale.language == "hi"
        or match[0].endswith(",000")
        or _BEFORE_LAKHS.search(text_before(match, 5))
        or _AFTER_LAKHS.match(text_after(match, 9))
    )
    return [(match[0].replace(",", "" if is_indian else ", "), 0)]


def _large_numbers(locale: Locale) -> Iterator[Rule]:
    scales = sorted(locale.scales, key=len, reverse=True)
    if short := "|".join(map(_scale_pattern, scales)):
        amount = rf"(?P<amount>{number_pattern(locale)}) ?(?P<scale>{short})"
        pattern = rf"(?<![\w.,])(?:(?P<first>{MONEY}) ?)?{amount}"
        pattern += rf"(?:(?! {MONEY} ?\d) ?(?P<last>{MONEY}))?"
        yield Rule.of(rf"{pattern}{_PER}(?!\w)", _say_scale)


def _scale_pattern(scale: str) -> str:
    """Pattern of how a large number is written short; "$5 t" may go on as a T-shirt."""
    glued = "(?<! )" if scale in ("m", "b", "t", "T") else ""
    return glued + re.escape(scale).replace(r"\.", r"\b\.?") + r"(?!\w)"


def parts_and_units(locale: Locale) -> Iterator[Rule]:
    """Rules for fractions, and for numbers with a unit."""
    part = rf"{re.escape(locale.decimal)}\d+"
    number, units = f"{number_pattern(locale)}|{part}", units_pattern(locale)
    if locale.is_spaced:
        rating = rf"{START}(\d{{1,2}}{re.escape(locale.decimal)}\d)/(\d{{1,3}}){END}"
        yield Rule.of(rating, _say_rating)
    yield Rule(_FRACTION, _say_fraction)
    yield Rule(_SINGLE_FRACTION, _say_single_fraction)
    yield Rule.of(
        rf"(?<![\w.,$€£¥])({number}) ?({units})(?:\.(?= [a-zа-я\d]|[,;:)]))?{_AMOUNT_END}",
        _say_unit,
    )


def counts(locale: Locale) -> Iterator[Rule]:
    """Rules for numbers that agree with what they count."""
    if nouns := "|".join(locale.words.nouns):
        number = rf"(?<![\w.,:/$€£-])(?<!\d ){number_pattern(locale)}"
        yield Rule.of(
            rf"{number}(?= ({nouns})(?!\w))",
            lambda match, locale: [(counted(match[0], match[1], locale), 0)],
        )
    if counters := "|".join(locale.words.counters):
        yield Rule.of(counters, lambda match, locale: [(_counter(match, locale), 0)])


def _say_money(match: re.Match[str], locale: Locale) -> list[Part] | None:
    number, sign, at = match["amount"], match["sign"], match.start("amount") - match.start()
    if price := re.fullmatch(r"(\d+)[.,](\d\d)", number):  # "3.50 €" in German
        number = f"{price[1]}{locale.decimal}{price[2]}"
    whole, _, decimals = number.partition(locale.decimal)
    sign_at = max(at, match.start("sign") - match.start())
    if len(decimals) != 2 or locale.minor_currency(sign, 2) is None:
        value = 1 if _is_before_noun(match, locale) else value_of(number, locale)
        name = locale.currency(sign, value)
        number = counted(number if whole else f"0{number}", name, locale)
        said = [(number, at), (f" {name}", sign_at), *_per(match, locale)]
        return [*said, (last_dot(match), len(match[0]) - 1)]
    places = (at, at + len(whole) + 1, sign_at)
    said = [*_price(whole or "0", decimals, sign, locale, places), *_per(match, locale)]
    return [*said, (last_dot(match), len(match[0]) - 1)]


def _is_before_noun(match: re.Match[str], locale: Locale) -> bool:
    """Whether an English amount describes a noun, as in "a $50 gift card", and has no plural."""
    before = text_before(match, 9)
    return (
        locale.language == "en"
        and _BEFORE_AMOUNT.search(before) is not None
        and _NOUN.match(match.string, match.end()) is not None
    )


def _per(match: re.Match[str], locale: Locale) -> Iterator[Part]:
    """The words for what follows a price, as in "$5/user/month"."""
    start = match.start("per") - match.start()
    for place in re.finditer(r"/ ?([^\W\d_]+)", match["per"]):
        name = place[1]
        unit = locale.unit(name, 1) if name in UNITS else None
        yield f" {locale.symbols['per']} ", start + place.start()
        yield unit[1] if unit else locale.words.periods.get(name, name), start + place.start(1)


def _say_cents(match: re.Match[str], locale: Locale) -> list[Part]:
    name = locale.minor_currency("$", value_of(match[1], locale))
    return [(match[1], 0), (f" {name}", len(match[1])), *_per(match, locale)]


def _say_scale(match: re.Match[str], locale: Locale) -> list[Part] | None:
    """An abbreviated large number; one without a dot counts only next to a currency."""
    number, short = match["amount"], match["scale"]
    sign, dotted = match["first"] or match["last"], f"{short.removesuffix('.')}."
    is_dotted = dotted in locale.scales
    if not sign and not is_dotted:
        return None
    scale = locale.scale(dotted if is_dotted else short, value_of(number, locale))
    at, place = (match.start(name) - match.start() for name in ("amount", "scale"))
    said = [(counted(number, scale, locale), at), (f" {scale}", place)]
    if sign:
        after = match.start("last") - match.start() if match["last"] else place
        amount = 1 if _is_before_noun(match, locale) else 5
        said.append((_of(short, locale.currency(sign, amount), locale), after))
    return [*said, *_per(match, locale), (last_dot(match), len(match[0]) - 1)]


def _of(short: str, currency: str, locale: Locale) -> str:
    """A currency after a large number, as in "5 millions d'euros"; thousands need no word."""
    if not locale.words.of or locale.scales.get(short) == locale.scales["k"]:
        return f" {currency}"
    if locale.language == "fr" and currency[0] in "aeiouy":
        return f" d'{currency}"
    return f" {locale.words.of} {currency}"


def _price(
    whole: str, decimals: str, sign: str, locale: Locale, at: tuple[int, int, int]
) -> Iterator[Part]:
    """A price with a minor unit: "3 dollars and 50 cents", "3 Euro 50".

    `decimals`, two digits, are the number of minor units. `at` has the indices of whole, decimals
    and sign.
    """
    major, minor = value_of(whole, locale), int(decimals)
    name = locale.minor_currency(sign, minor) or ""
    cents = f"{counted(str(minor), name, locale)} {name}"
    is_sign_first = at[2] == at[0]
    if not major and minor:
        yield cents, at[1]
        return
    dollars = f" {locale.currency(sign, major)}"
    yield counted(whole, dollars[1:], locale), at[0]
    if not minor:
        yield dollars, at[2]
        return
    yield dollars, at[0]
    words = locale.words
    join = f" {words.before_minor} " if words.before_minor else " "
    yield (
        join + (cents if words.names_minor else str(minor)),
        (at[1] if is_sign_first else at[2]),
    )


def _say_fraction(match: re.Match[str], locale: Locale) -> list[Part] | None:
    whole, upper, lower = match.groups()
    if whole is None and (date := dates.day_of_month(match, locale)):
        return date
    at = match.start(2) - match.start()
    said = _fraction(int(upper), int(lower), locale)
    if whole is None:
        return [(said, at)]
    return [(whole, 0), (f" {locale.symbols['&']} {said}", at)]


def _say_rating(match: re.Match[str], locale: Locale) -> list[Part]:
    """Decimals of a whole number, as in "4.5/5"."""
    of = {"en": "out of", "de": "von"}.get(locale.language, locale.symbols["/"])
    at = match.start(2) - match.start()
    return [(match[1], 0), (f" {of} ", at - 1), (match[2], at)]


def _fraction(upper: int, lower: int, locale: Locale) -> str:
    part = None if (upper, lower) == (24, 7) else locale.part(upper, lower)
    if said := locale.words.fractions.get(f"{upper}/{lower}") or part:
        return said
    if locale.language == "en":
        return _english_fraction(upper, lower, locale)
    stroke = "" if (upper, lower) == (24, 7) else f" {locale.symbols['/']}"
    return f"{upper}{stroke} {lower}"


def _english_fraction(upper: int, lower: int, locale: Locale) -> str:
    """A part of a whole where that is meant; 24/7 and 9/11 are two numbers."""
    if lower in (3, 4, 5, 6, 8, 16) and upper < lower:
        part = locale.ordinal(lower) if lower != 4 else "quarter"
        return f"{upper} {part}" if upper == 1 else f"{upper} {part}s"
    if lower in (10, 100) and upper <= lower:
        return f"{upper} out of {lower}"
    return f"{upper} {lower}"


def _say_single_fraction(match: re.Match[str], locale: Locale) -> list[Part]:
    written = unicodedata.normalize("NFKC", match[2]).replace("\u2044", "/")
    at = match.start(2) - match.start()
    upper, _, lower = written.partition("/")
    said = _fraction(int(upper), int(lower), locale)
    if match[1] is None:
        return [(said, at)]
    return [(match[1], 0), (f" {locale.symbols['&']} {said}", at)]


def _say_unit(match: re.Match[str], locale: Locale) -> list[Part] | None:
    number, symbol = match[1], match[2]
    if symbol == "s" and " " not in match[0]:  # a plural, as in "737s"
        return None
    if symbol == "TL" and value_of(number, locale) > _MOST_SPOONS:
        return None
    value = 1 if _is_before_noun(match, locale) else value_of(number, locale)
    said = locale.unit(symbol, value)
    if said is None:
        return None
    before, after = said
    at = match.start(2) - match.start()
    number = counted(number, after, locale)
    return [(f"{before} " if before else "", 0), (number, 0), (f" {after}" if after else "", at)]


def _say_feet(match: re.Match[str], locale: Locale) -> list[Part]:
    at = match.start(2) - match.start()
    return [(f"{match[1]} foot", 0), (f" {match[2]}", at)]


def _say_feet_or_inches(match: re.Match[str], locale: Locale) -> list[Part] | None:
    """A length with one mark; a mark that may end a quotation is none."""
    if re.search(r'(?<!\d)["“]', text_before(match, 80)):
        return None
    one, more = ("foot", "feet") if match[2] else ("inch", "inches")
    is_one = match[1] == "1" or (match[4] and not match[3])
    return [(match[1], 0), (f" {one if is_one else more}", len(match[1]))]


def _counter(match: re.Match[str], locale: Locale) -> str:
    if locale.language != "ko":
        return locale.words.own_counts[match[0]]
    if match.string.startswith("월", match.end()):
        return "유" if match[0] == "6" else "시"
    gap = "" if match.string.startswith(" ", match.end()) else " "
    return ("스무" if match[0] == "20" else _KOREAN[match[0]]) + gap


FEET_AND_INCHES = (Rule(_FEET, _say_feet), Rule(_FEET_OR_INCHES, _say_feet_or_inches))
