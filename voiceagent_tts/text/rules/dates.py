"""Dates, years and decades."""

import re
from collections.abc import Iterator

from voiceagent_tts.text import abbreviations
from voiceagent_tts.text.locales import Locale
from voiceagent_tts.text.rules.rule import END, START, Part, Rule, last_dot, text_after, text_before

_ISO_DATE = re.compile(
    rf"{START}(\d{{4}})(?:-(?=\d\d-\d\d(?!\d))|/(?=\d\d?/))(\d\d?)[/-](\d\d?)(?![\w/-])"
)
_DOTTED_DATE = re.compile(rf"{START}(\d{{4}})\. ?(\d\d?)\. ?(\d\d?)(?:\.(?![\w.])|(?![\w.])|\.$)")
"""A date of languages that write the year first, such as "2026. 5. 3."."""
_STAMP = re.compile(
    rf"{START}(\d{{4}}-\d\d-\d\d)T(\d\d:\d\d)(?::00|(:\d\d))?(?:\.\d+)?(?:(Z)|([+-])(\d\d):?00)?(?!\w)"
)
"""A date and a time of ISO 8601."""
_DATE = re.compile(rf"{START}(\d{{1,2}})([./-])(\d{{1,2}})\2(\d{{4}}|\d\d){END}")
_DAY_CUE = re.compile(
    r"\b(?:on|due|until|till|since|starting|(?:mon|tues|wednes|thurs|fri|satur|sun)day,?"
    r"|le|du|au|el|del|il|dal|dia|até|op|tot) $",
    re.IGNORECASE,
)
_WEAK_DAY_CUE = re.compile(r"(?:\b(?:by|before|after|from)|\d/\d\d? (?:to|through|and|al?|e)) $")
_PART_OF = re.compile(
    r" ?(?:of|d[ei']|des|del|d[ae]ll[aeo']|degli|dei|d[aeo]s?|van|the|an?|cups?|\w+spoons?|inch\w*"
    r"|miles?|hours?|pounds?|acres?|full|power|speed|scale|tarif|vermogen)\b"
)
"""Text after a fraction, and not after a date."""
_DAY_AFTER = re.compile(
    r" ?[(（][월화수목금토일月火水木金土日一二三四五六][)）]| at \d| ?\d\d? ?[時点點시]"
    r"|から|まで|부터|까지"
)
_DECADE = re.compile(
    r"(?:(?<![\w.,-])|(?<=[a-z]-))(?:(1[1-9]|20)(\d)0|['’](\d)0)['’]?s\b"
    r"|(?:(?<=\b(?:the|his|her|our|mid|low) )|(?<=\b(?:early|their|upper) )|(?<=\bmy )|(?<=\bmid-)"
    r"|(?<=\b(?:late|your|high) ))([2-9])0s\b"
)
_YEAR = re.compile(
    r"(?<![\w.,/:$€£¥#-])(?:(?<!\d )|(?<=\b[QH]\d ))(?<!\d\.)"
    r"(1[1-9]\d\d|20[1-9]\d)(?![\w%°/-])(?![.,:]\d)"
)
_ENGLISH_DAY = (
    r"\b({months}|(?:{short})\.?) (\d{{1,2}})(?:st|nd|rd|th)?(?!\w|[.:/-]\d)"
    r"(?: to (\d{{1,2}})(?:st|nd|rd|th)?(?!\w|[.:/-]\d| ?[APap]\.?[Mm]\b))?"
)
_BRITISH_DAY = r"(?<![\w.,:/$€£-])(\d{{1,2}}) ({months}|(?:{short})\b\.?)(?!\w)"
_GERMAN_DAY = (
    r"(?<![\w.,])(\d{{1,2}})\.(?: (?={months}|bis \d|(?:und|oder|auf den|bis zum) {next})"
    r"| ?([-–/]) ?(?={next}))"
)
_GERMAN_DATE = re.compile(r"(?<![\w.,])(\d{1,2})\.(\d{1,2})\.(?![\w.])")
_GERMAN_DATE_CUE = re.compile(r"\b(?:am|vom|zum|bis|ab|seit|der|den|dem|\w+tag,?) $", re.IGNORECASE)
_GERMAN_DAYS = re.compile(
    rf"{START}(\d{{1,2}})\. ?([-–]) ?(\d{{1,2}})\.(\d{{1,2}})\.(\d{{4}})?(?![\w.])"
)
_GERMAN_DECADE = re.compile(r"(?<![\w.,-])(\d{1,4})er\b")


def in_digits(locale: Locale) -> Iterator[Rule]:
    """Rules for dates in digits, with their year."""
    yield Rule(_STAMP, _say_stamp)
    yield Rule(_ISO_DATE, _say_iso_date)
    if not locale.is_spaced:
        yield Rule(_DOTTED_DATE, _say_iso_date)
    if locale.language == "de":
        yield Rule(_GERMAN_DAYS, _say_german_days)
    yield Rule(_DATE, _say_date)


def days(locale: Locale) -> Iterator[Rule]:
    """Rules for days next to the name of their month, and for German dates without a year."""
    months = "|".join(locale.months)
    if locale.language == "en":
        names = {"months": months, "short": abbreviations.MONTHS}
        yield Rule.of(_ENGLISH_DAY.format(**names), _say_english_day)
        yield Rule.of(_BRITISH_DAY.format(**names), _say_british_day)
    if locale.language == "de":
        after = rf"\d{{1,2}}\. ?(?:{months})"
        yield Rule.of(_GERMAN_DAY.format(months=months, next=after), _say_german_day)
        yield Rule(_GERMAN_DATE, _say_german_date)
        yield Rule(_GERMAN_DECADE, lambda match, locale: [(f"{_year(int(match[1]), locale)}er", 0)])


def _say_iso_date(match: re.Match[str], locale: Locale) -> list[Part] | None:
    year, month, day = (int(group) for group in match.groups())
    start = match.start()
    at = (0, match.start(2) - start, match.start(3) - start)
    return _date((year, month, day), match, locale, at)


def _say_stamp(match: re.Match[str], locale: Locale) -> list[Part]:
    """A date and a time; the zone is said, seconds only where there are some."""
    date, time, seconds, zulu, sign, hours = match.groups()
    at = match.start(2) - match.start()
    zone = " UTC" if zulu or sign else ""
    if sign and int(hours):
        zone += f" {locale.symbols[sign]} {int(hours)}"
    return [(date, 0), (f", {time}{seconds or ''}", at), (zone, len(match[0]) - 1)]


def _say_date(match: re.Match[str], locale: Locale) -> list[Part] | None:
    first, second, year = int(match[1]), int(match[3]), int(match[4])
    if len(match[4]) == 2:
        if not _is_short_date(match, locale):
            return None
        year += 2000 if year < 70 else 1900
    is_month_first = locale.is_american and match[2] != "." and first <= 12
    day, month = (second, first) if is_month_first else (first, second)
    start = match.start()
    at = (0, match.start(3) - start, match.start(4) - start)
    return _date((year, month, day), match, locale, at)


def _is_short_date(match: re.Match[str], locale: Locale) -> bool:
    """Whether three numbers, of which the last has two digits, are a date and no version."""
    has_dots = match[2] == "." and locale.decimal == "," and len(match[1] + match[3]) == 4
    return locale.is_spaced and (match[2] == "/" or has_dots)


def _date(
    date: tuple[int, int, int], match: re.Match[str], locale: Locale, at: tuple[int, int, int]
) -> list[Part] | None:
    """A date in the language's order; its parts are at the three indices, in that order."""
    year, month, day = date
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    before = text_before(match, 4)
    ending = "n" if locale.language == "de" and before.casefold() != "der " else ""
    words = {
        "day": day,
        "ordinal": f"{locale.ordinal(day)}{ending}" if locale.writes_numbers else day,
        "month": locale.months[month - 1],
        "year": _year(year, locale),
    }
    return [(part.format(**words), index) for part, index in zip(locale.date, at, strict=True)]


def day_of_month(match: re.Match[str], locale: Locale) -> list[Part] | None:
    """A date without a year, as in "on 5/3", if the text next to it shows that it is one."""
    before = text_before(match, 16)
    after = text_after(match, 16)
    is_cued = _DAY_CUE.search(before) or (
        _WEAK_DAY_CUE.search(before) and match[0] not in locale.words.fractions
    )
    is_date = (is_cued and not _PART_OF.match(after)) or _DAY_AFTER.match(after)
    if not is_date or match[0] == "9/11":
        return None
    numbers, at = (int(match[2]), int(match[3])), match.start(3) - match.start()
    is_month_first = locale.is_american or not locale.is_spaced
    month, day = numbers if is_month_first else numbers[::-1]
    said = _date((2000, month, day), match, locale, (0, at if locale.is_spaced else 0, at))
    if said is None:
        return None
    first, last = (
        part for part, form in zip(said, locale.date, strict=True) if "{year}" not in form
    )
    return [first, (re.sub(r"(?:,| de)? $", "", last[0]), last[1])]


def _year(year: int, locale: Locale) -> str:
    return locale.year(year) if locale.words.year_cues else str(year)


def _say_year(match: re.Match[str], locale: Locale) -> list[Part] | None:
    if not locale.words.year_cues:
        return None
    before = text_before(match, 12)
    shorts = [rf"(?:{abbreviations.MONTHS})\.?"] if locale.language == "en" else []
    cues = "|".join([*locale.words.year_cues, *locale.months, *shorts])
    is_cued = re.search(rf"(?:^|\W)(?:{cues}) ?$", before) is not None
    is_number = before.endswith(f"{locale.symbols['-']} ")
    if is_number or (not is_cued and not "1700" <= match[1] <= "1999"):
        return None
    return [(_year(int(match[1]), locale), 0)]


def _say_decade(match: re.Match[str], locale: Locale) -> list[Part] | None:
    if locale.language != "en":
        return None
    if ten := match[3] or match[4]:
        tens = locale.cardinal(int(ten) * 10) if int(ten) > 1 else ""
        return [(_plural(tens), 0)] if tens else None
    return [(_plural(locale.year(int(f"{match[1]}{match[2]}0"))), 0)]


def _plural(word: str) -> str:
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def _say_english_day(match: re.Match[str], locale: Locale) -> list[Part] | None:
    at, last = (match.start(group) - match.start() for group in (2, 3))
    said = [(f"{abbreviations.month(match[1])} ", 0), (locale.ordinal(int(match[2])), at)]
    return [*said, (f" to {locale.ordinal(int(match[3]))}", last)] if match[3] else said


def _say_british_day(match: re.Match[str], locale: Locale) -> list[Part] | None:
    day, at = int(match[1]), match.start(2) - match.start()
    if not 1 <= day <= 31:
        return None
    return [(f"the {locale.ordinal(day)} of ", 0), (abbreviations.month(match[2]), at)]


def _say_german_day(match: re.Match[str], locale: Locale) -> list[Part]:
    before = text_before(match, 20).rstrip().rpartition(" ")[2]
    is_alone = not match[2] and not match.string.startswith("bis", match.end())
    is_subject = before.casefold() == "der" or (not before and is_alone)
    said = f"{locale.ordinal(int(match[1]))}{'' if is_subject else 'n'} "
    if not match[2]:
        return [(said, 0)]
    between = locale.symbols["–" if match[2] != "/" else "&"]
    return [(said, 0), (f"{between} ", match.start(2) - match.start())]


def _say_german_days(match: re.Match[str], locale: Locale) -> list[Part] | None:
    """Two days of one month, as in "24.-26.12."."""
    first, last, month = (int(match[group]) for group in (1, 3, 4))
    if not (1 <= first < last <= 31 and 1 <= month <= 12):
        return None
    dash, day, at = (match.start(group) - match.start() for group in (2, 3, 4))
    said = [
        (f"{locale.ordinal(first)}n", 0),
        (f" {locale.symbols['–']} ", dash),
        (f"{locale.ordinal(last)}n ", day),
        (locale.months[month - 1], at),
    ]
    year = (
        [(f" {_year(int(match[5]), locale)}", match.start(5) - match.start())] if match[5] else []
    )
    return [*said, *year, (last_dot(match), len(match[0]) - 1)]


def _say_german_date(match: re.Match[str], locale: Locale) -> list[Part] | None:
    """A date without a year after a word that dates have before them; "1.2." may be a version."""
    day, month = int(match[1]), int(match[2])
    before = text_before(match, 12)
    if not (1 <= day <= 31 and 1 <= month <= 12 and _GERMAN_DATE_CUE.search(before)):
        return None
    said = locale.ordinal(day) + ("" if before.casefold().endswith("der ") else "n")
    at = match.start(2) - match.start()
    return [(f"{said} ", 0), (locale.months[month - 1], at), (last_dot(match), len(match[0]) - 1)]


DECADES = Rule(_DECADE, _say_decade)
YEARS = Rule(_YEAR, _say_year)
