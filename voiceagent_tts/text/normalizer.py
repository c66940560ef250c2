"""Numbers, money, dates, units and symbols of a text in the words that a speaker says for them.

For voices that read what is written: `$3.50` becomes `3 dollars and 50 cents`, `5 - 3` becomes
`5 minus 3`, `2026-11-25` a date. Numbers stay digits for a voice that reads digits itself, and
become words for one that does not. Every character that is said has the offset of what it is said
for, so the words of the history stay the client's.

This module knows no voice and no markdown: its input is what `readings.said` returns.
"""

import logging
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from voiceagent_tts.text import abbreviations, codes, counters
from voiceagent_tts.text.locales import CURRENCIES, NOUNS, UNITS, Locale, locale_of
from voiceagent_tts.text.readings import Said

_logger = logging.getLogger(__name__)


def normalize(said: Said, language: str, *, reads_digits: bool) -> Said:
    """Return what a speaker says for a text.

    The time is linear in the length of the text. Pronunciations in IPA stay as they are, and so
    does what a rule fails for: no text raises an error.

    Args:
        said: cleaned text.
        language: code of its language, perhaps with a region; text in a language without rules is
            returned unchanged.
        reads_digits: whether the voice reads cardinal numbers, percent signs and other common
            symbols itself; they are said in words otherwise.
    """
    locale = locale_of(language)
    if locale is None or _is_plain(said.text, locale):
        return said
    draft = _Draft(said.text, tuple(range(len(said.text))))
    for rule in _rules(locale, reads_digits):
        draft = _apply(rule, draft, locale, said.ipa)
    return _with_origins(said, draft)


def _is_plain(text: str, locale: Locale) -> bool:
    """Whether no rule matches, as in most texts."""
    if not _PLAIN.fullmatch(text):
        return False
    short = [rule.pattern for rule in _written_short(locale)]
    if locale.language == "en":
        short += abbreviations.LATE
    elif locale.language in _NUMERALS:
        short.append(re.compile(_NUMERALS[locale.language][0]))
    return not any(pattern.search(text) for pattern in short)


_PLAIN = re.compile(r"(?:[^\d\W_¼-¾⅐-⅞²³¹⁰⁴-⁹]|[\s,;:!?'\"()’“”…。，、！？：；「」]|\.(?!\w))*+")
"""Texts without digits, symbols and dots inside words."""

_Part = tuple[str, int]
"""What is said, and the index in the match of what it is said for."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """Text in which some rules have been applied.

    Attributes:
        text: its characters.
        origins: index in the given text of each of them; non-decreasing.
    """

    text: str
    origins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Rule:
    """Replaces matches of a pattern by what `say` returns; None leaves the match as it is."""

    pattern: re.Pattern[str]
    say: Callable[[re.Match[str], Locale], Sequence[_Part] | None]


def _apply(rule: _Rule, draft: _Draft, locale: Locale, ipa: Sequence[tuple[range, str]]) -> _Draft:
    parts: list[str] = []
    origins: list[int] = []
    at = 0
    for match in rule.pattern.finditer(draft.text):
        span = draft.origins[match.start() : match.end()]
        if any(place.start <= span[-1] and span[0] < place.stop for place, _ in ipa):
            continue
        said = _said(rule, match, locale, span)
        if said is None:
            continue
        parts.append(draft.text[at : match.start()])
        origins += draft.origins[at : match.start()]
        for text, origin in said:
            parts.append(text)
            origins += [origin] * len(text)
        at = match.end()
    if not at:
        return draft
    return _Draft("".join([*parts, draft.text[at:]]), (*origins, *draft.origins[at:]))


def _said(
    rule: _Rule, match: re.Match[str], locale: Locale, span: Sequence[int]
) -> list[_Part] | None:
    """What a rule says for a match, with origins instead of indices; None if it stays as it is.

    It also stays if the rule fails: a number in digits is better than a turn without an end.
    """
    try:
        said = rule.say(match, locale)
        return None if said is None else [(text, span[index]) for text, index in said]
    except Exception as error:  # for texts that nobody has thought of
        _logger.error("%d characters are said as written: %s", len(span), type(error).__name__)
        return None


def _with_origins(said: Said, draft: _Draft) -> Said:
    ipa = tuple((_moved(span, draft.origins), sounds) for span, sounds in said.ipa)
    return Said(draft.text, tuple(said.offsets[origin] for origin in draft.origins), ipa)


def _moved(span: range, origins: Sequence[int]) -> range:
    places = [place for place, origin in enumerate(origins) if origin in span]
    return range(places[0], places[-1] + 1)


# Patterns. A number may be written with marks between groups of three digits, and with decimals.


def _number(locale: Locale) -> str:
    group, decimal = re.escape(locale.group), re.escape(locale.decimal)
    return rf"(?:\d{{1,3}}(?:{group}\d{{3}}){{1,4}}|\d{{1,15}})(?!\d)(?:{decimal}\d+)?"


_START = r"(?<![\w.,/:-])(?:(?<=[^\W\d_]['’])|(?<!['’]))"
"""Where a number may begin; behind an apostrophe only after a letter, as in "all'1:30"."""
_END = r"(?![\w/])(?!-\w)(?![.,:]\d)"
_ISO_DATE = re.compile(
    rf"{_START}(\d{{4}})(?:-(?=\d\d-\d\d(?!\d))|/(?=\d\d?/))(\d\d?)[/-](\d\d?)(?![\w/-])"
)
_DOTTED_DATE = re.compile(rf"{_START}(\d{{4}})\. ?(\d\d?)\. ?(\d\d?)(?:\.(?![\w.])|(?![\w.])|\.$)")
"""A date of languages that write the year first, such as "2026. 5. 3."."""
_STAMP = re.compile(
    rf"{_START}(\d{{4}}-\d\d-\d\d)T(\d\d:\d\d)(?::00|(:\d\d))?(?:\.\d+)?(?:(Z)|([+-])(\d\d):?00)?(?!\w)"
)
"""A date and a time of ISO 8601."""
_DATE = re.compile(rf"{_START}(\d{{1,2}})([./-])(\d{{1,2}})\2(\d{{4}}|\d\d){_END}")
_PHONE = (
    rf"{_START}(?:{{own}}\+\d{{1,3}}(?:[ .-]?\(\d{{1,4}}\))?(?:[ .-]?\d{{1,4}}){{2,6}}"
    r"|\(\d{2,5}\)[ -]?\d{2,8}(?:[ .-]\d{2,4}){0,3}"
    r"|(?:\d-)?\d{3}([-.])\d{3}\1\d{4}|\d{3} \d{3} \d{4}|\d{3}-\d{4}(?<!00)"
    rf"|0\d{{1,4}}[ /-]\d{{3,}}(?:[ -]?\d{{2,}})*|0\d(?:[ .]\d\d){{4}}"
    r"|\d{4}(?: \d{4}){3}|\d{3}-\d\d-\d{4}"
    rf"|[A-Z]{{2}}\d\d(?: ?(?=[A-Z]*\d)[\dA-Z]{{4}}){{2,7}}(?: ?\d{{1,3}})?){_END}"
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
_CLOCK = re.compile(
    rf"{_START}([01]?\d|2[0-4])(?::|(?<=\d)h|\.(?=\d\d ?Uhr))([0-5]\d)"
    r"(?: ?(Uhr|[AaPp]\.?[Mm]\b\.?|uur|h\b))?(?![\w:])"
)
_HALF = r"(?: ?[AaPp]\.?[Mm]\b\.?)"
_CLOCK_RANGE = re.compile(
    rf"{_START}(\d?\d(?:[:.]\d\d)?(?:{_HALF}|h(?:\d\d)?| ?Uhr)?) ?[-–~〜～] ?"
    rf"(\d?\d(?::\d\d{_HALF}?|{_HALF}|h(?:\d\d)?|(?:[:.]\d\d)? ?Uhr))(?![\w:])"
)
_COUNTED_RANGE = re.compile(
    r"(?<=\d)([^\x00-\x7f]{1,2})(?: [-–~〜～] |[-–~〜～])(?=(?:午前|午後|[上下]午|오[전후])? ?\d)"
)
_OPEN = re.compile(
    r"\b(?:open|hours:?|days?:?|from|geöffnet|ouvert\w*|abiert\w*|apert\w*|abert\w*) $"
)
"""What stands before opening hours, whose first number may be the larger one."""
_DURATION = re.compile(
    r"(?<![\w.,])\d{1,4} ?(?:h|m|min)(?: ?\d{1,2} ?(?:m|min|s|sec)){1,2}(?![\w/²³])"
)
_SECONDS = re.compile(rf"{_START}(\d{{1,2}}):([0-5]\d):([0-5]\d)(?![\w:]|[.,]\d)")
_RATIO = re.compile(rf"{_START}(\d{{1,4}}):(\d{{1,4}})(?![\w:]|[.,]\d)")
_POWER = re.compile(r"(?:(?<=[\d)])|(?<=\b[A-Za-z]))⁻?[²³¹⁰⁴-⁹]+")
_FRACTION = re.compile(rf"{_START}(?:(\d+) )?(\d{{1,4}})/(\d{{1,4}}){_END}")
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
"""What follows a part, and no date."""
_DAY_AFTER = re.compile(
    r" ?[(（][월화수목금토일月火水木金土日一二三四五六][)）]| at \d| ?\d\d? ?[時点點시]"
    r"|から|まで|부터|까지"
)
_SINGLE_FRACTION = re.compile(r"(?:(?<![\w.,/])(\d{1,4}) ?)?([¼-¾⅐-⅞])")
_DECADE = re.compile(
    r"(?:(?<![\w.,-])|(?<=[a-z]-))(?:(1[1-9]|20)(\d)0|['’](\d)0)['’]?s\b"
    r"|(?:(?<=\b(?:the|his|her|our|mid|low) )|(?<=\b(?:early|their|upper) )|(?<=\bmy )|(?<=\bmid-)"
    r"|(?<=\b(?:late|your|high) ))([2-9])0s\b"
)
_YEAR = re.compile(
    r"(?<![\w.,/:$€£¥#-])(?<!\d )(?<!\d\.)(1[1-9]\d\d|20[1-9]\d)(?![\w%°/-])(?![.,:]\d)"
)
_ORDINALS = {
    "en": r"(\d{1,3}(?:,\d{3})+|\d{1,6})(st|nd|rd|th)\b",
    "fr": r"(\d{1,4})(er|ers|re|res|e|es|ème|ième)\b",
    "es": r"(\d{1,3})\.?(º|ª|er\b)",
    "it": r"(\d{1,3})\.?(º|ª)",
    "pt": r"(\d{1,3})\.?(º|ª)",
    "nl": r"(\d{1,4})(e|de|ste)\b",
}
_DEGREE_ORDINAL = (
    r"(?<![\w.,])(?:(?<=\b(?:il|al|el|no|do|ao) )|(?<=\b(?:del|dal|nel|sul) )|(?<=\bo )"
    r"|(?=\d\d?° (?:de )?(?:{months}|piano|piso|posto|puesto|andar|lugar)\b))(\d\d?)°(?= [a-z])"
)
"""The degree sign for the mark of an ordinal in Italian, Spanish and Portuguese."""
_ROMAN = r"((?=[IVX])X{0,3}(?:IX|IV|V?I{0,3})(?<=[IVX]))"
_NUMERALS = {
    "de": (rf"\b(){_ROMAN}(?=\. Jahrhundert)", ""),
    "fr": (
        rf"\b([A-ZÉ]\w+ (?=[IVX]{{2}}))?{_ROMAN}(?=(?(1)(?:er|re|e|ème)?|(?:er|re|e|ème))\b)",
        "",
    ),
    "es": (rf"(\b[Ss]iglos? ){_ROMAN}\b", ""),
    "it": (rf"\b(){_ROMAN}(?= secolo\b)", "º"),
    "pt": (rf"(\b[Ss]éculos? ){_ROMAN}\b", ""),
}
"""Roman numerals behind names and what such languages count, and the mark behind their digits."""
_ENGLISH_DAY = (
    r"\b({months}|(?:{short})\.?) (\d{{1,2}})(?:st|nd|rd|th)?(?!\w|[.:/-]\d)"
    r"(?: to (\d{{1,2}})(?:st|nd|rd|th)?(?!\w|[.:/-]\d| ?[APap]\.?[Mm]\b))?"
)
_BRITISH_DAY = r"(?<![\w.,:/$€£-])(\d{{1,2}}) ({months}|(?:{short})\b\.?)(?!\w)"
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
"""What an amount describes."""
_GERMAN_DAY = (
    r"(?<![\w.,])(\d{{1,2}})\.(?: (?={months}|bis \d|(?:und|oder|auf den|bis zum) {next})"
    r"| ?([-–/]) ?(?={next}))"
)
_GERMAN_DATE = re.compile(r"(?<![\w.,])(\d{1,2})\.(\d{1,2})\.(?![\w.])")
_GERMAN_DATE_CUE = re.compile(r"\b(?:am|vom|zum|bis|ab|seit|der|den|dem|\w+tag,?) $", re.IGNORECASE)
_GERMAN_ORDINAL = re.compile(r"(?<![\w.,])(\d{1,3})\. (?=([A-ZÄÖÜ]\w+))")
_GERMAN_CUE = re.compile(
    r"(?:^|\W)(?:(?P<weak>der|die|das|eine)|(?P<strong>ein)|d(?:em|en|es)|im|am|zum|zur|vom|beim|ins"
    r"|(?:in|an|auf|mit|von|bei|zu|aus|nach|seit) der|eine[nmrs]) $",
    re.IGNORECASE,
)
_GERMAN_ENDINGS = {
    "Weltkrieg": "r", "Platz": "r", "Stock": "r", "Geburtstag": "r", "FC": "r",
    "Jahrhundert": "s", "Quartal": "s", "Kapitel": "s",
    "Klasse": "", "Etage": "", "Bundesliga": "",
}  # fmt: skip
"""Endings of an ordinal before nouns that have one without an article, too."""
_SHORT_MONTH = re.compile(r"(?:(?<=\d )|(?<=\d\. )|(?<=\d de ))([^\W\d_]{3,5})\.(?=,| \w)")
_GERMAN_DECADE = re.compile(r"(?<![\w.,-])(\d{1,4})er\b")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_SITE = re.compile(
    r"(?<![\w@.-])(?:www\.)?[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|io|ai|dev|app|gov|edu|eu|co\.uk|uk|de"
    r"|fr|es|it|pt|br|nl|ru|info|me)(?:/[\w./?=&%#~+-]*\w)?(?![\w.]\w|\w)"
)
_TIMES = {
    "de": {"x": "mal"}, "fr": {"x": "fois", "h/": "heures sur", "j/": "jours sur"},
    "es": {"x": "veces"}, "it": {"x": "volte", "h/": "ore su", "g/": "giorni su"},
    "pt": {"x": "vezes"}, "nl": {"x": "keer"},
}  # fmt: skip
"""What is said behind the number of "3x" and of "24h/24"."""
_ADDRESS_SIGNS = {
    "en": "slash|underscore|hyphen", "de": "Schrägstrich|Unterstrich|Bindestrich",
    "fr": "slash|tiret bas|tiret", "es": "barra|guion bajo|guion",
    "it": "barra|trattino basso|trattino", "pt": "barra|sublinhado|hífen",
    "nl": "slash|underscore|streepje", "ru": "слэш|подчёркивание|дефис",
    "zh": "斜杠|下划线|横杠", "yue": "斜線|底線|橫線", "ja": "スラッシュ|アンダーバー|ハイフン",
    "ko": "슬래시|밑줄|하이픈",
}  # fmt: skip
"""What `/`, `_` and `-` are called in the address of a mail or site."""
_YEAR_CUES = {
    "en": r"in|since|by|until|till|from|year|after|before|around|circa|early|late|mid|and|to"
    r"|spring|summer|fall|autumn|winter|of|January|February|March|April|May|June|July|August"
    rf"|September|October|November|December|(?:{abbreviations.MONTHS})\.?|\d\d?,",
    "de": r"in|seit|bis|von|Jahre?s?|vor|nach|um|ab|und|Januar|Februar|März|April|Mai|Juni|Juli"
    r"|August|September|Oktober|November|Dezember",
    "nl": r"in|sinds|tot|van|jaar|voor|na|rond|en|januari|februari|maart|april|mei|juni|juli"
    r"|augustus|september|oktober|november|december",
}


@lru_cache(maxsize=64)
def _rules(locale: Locale, reads_digits: bool) -> tuple[_Rule, ...]:
    """The rules of a language, in the order in which they are applied."""
    language, number, sign = locale.language, _number(locale), r"[$€£¥]"
    months = "|".join(locale.months)
    amount = rf"(?P<amount>{number}|{re.escape(locale.decimal)}\d\d?(?!\d)|\d{{1,6}}[.,]\d\d(?!\d))"
    money = f"(?:{sign}|{'|'.join(map(re.escape, CURRENCIES))})"
    part = rf"{re.escape(locale.decimal)}\d+"
    per = r"(?P<per>(?: ?/ ?[^\W\d_]+)*)"
    units = "|".join(sorted(map(re.escape, locale.units), key=len, reverse=True))
    end = r"(?![\w/²³])(?![.,]\d)"
    limit = rf"((?:{money} ?)?{number}(?:%| ?(?:{money}|[kKM]|{units})(?!\w))?)"
    no_unit = rf"(?! ?(?:{money}|{units})(?!\w))(?![가-힣一-鿿])"
    dash = "[-–]" if locale.is_spaced else "[-–~〜～]"
    rules = [*_written_short(locale), _Rule(_MAIL, _say_address), _Rule(_SITE, _say_address)]
    if language in ("it", "es", "pt"):
        rules.append(_Rule(re.compile(_DEGREE_ORDINAL.format(months=months)), _say_mark))
    rules += [
        _Rule(re.compile(r"(?<=\d)(?:[：．／](?=\d)|，(?=\d{3}(?!\d)))|＃(?=\d)"), _say_narrow),
        _Rule(_STAMP, _say_stamp),
        _Rule(_ISO_DATE, _say_iso_date),
        *(() if locale.is_spaced else (_Rule(_DOTTED_DATE, _say_iso_date),)),
        _Rule(_DATE, _say_date),
        _Rule(re.compile(_PHONE.replace("{own}", _OWN_PHONES.get(language, ""))), _say_spelled),
        _Rule(re.compile(rf"{_START}{codes.CODE}{_END}"), _say_code),
        _Rule(
            re.compile(rf"{_START}(?<!{sign})\d{{7,15}}(?<!00){no_unit}{_END}"), _say_long_number
        ),
        *(() if locale.is_spaced else (_Rule(_COUNTED_RANGE, _say_named_range),)),
        _Rule(_CLOCK_RANGE, _say_clock_range),
        _Rule(re.compile(rf"{_START}{limit} [-–−] {limit}(?![./,:]?\w| ?=)"), _say_spaced_range),
        _Rule(_named_range(locale), _say_named_range),
        _Rule(re.compile(r"(?<=[\d)%°€]) [-−] (?=[$€£¥]?[\d(−-])"), _say_minus),
        _Rule(re.compile(rf"(?<![\w.,])(?<!\d )({money}) ?[-−–](?=[.,]?\d)"), _say_minus_first),
        _Rule(re.compile(_minus(locale) + rf"(?=(?:{money} ?)?[.,]?[\d¼-¾⅐-⅞√])"), _say_minus),
        _Rule(_DURATION, _say_duration),
        _Rule(_SECONDS, _say_seconds),
        _Rule(_CLOCK, _say_clock),
        _Rule(_RATIO, _say_ratio),
        _Rule(re.compile(rf"{_START}{limit}{dash}{limit}(?!\w|-\w|[./,:]\d| ?=)"), _say_range),
        *_scale_rules(locale, number, money, per),
        _Rule(re.compile(rf"(?<![\w.,])(?P<sign>{money}) ?{amount}{per}{end}"), _say_money),
        _Rule(re.compile(rf"(?<![\w.,]){amount} ?(?P<sign>{money}){per}(?!\w)"), _say_money),
        _Rule(re.compile(rf"(?<![\w.,])({number}) ?¢"), _say_cents),
        _Rule(re.compile(r"[€£¥]|(?<![^\s(])\$(?![^\s).,;:!?])"), _say_currency),
        _Rule(_DECADE, _say_decade),
        _Rule(_FRACTION, _say_fraction),
        _Rule(_SINGLE_FRACTION, _say_single_fraction),
        _Rule(
            re.compile(rf"(?<![\w.,])({number}|{part}) ?({units})(?:\.(?= [a-z\d]))?{end}"),
            _say_unit,
        ),
        _Rule(re.compile(r"(?<=\b[b-zB-Z0-9]) [-−] (?=[b-zB-Z0-9]\b)"), _say_minus),
        _Rule(re.compile(r"(?<=\d) – (?=\d+(?: ?=|[.!?,;)](?!\d)|$))"), _say_minus),
        _Rule(re.compile(r"(?<=\d)[-–](?=\d+ ?=)|(?<=[\d)])−(?=[\d(])"), _say_minus),
        _Rule(re.compile(r"(?:(?<==)|(?<== ))[-−](?=[A-Za-z(])"), _say_minus),
        _Rule(_POWER, _say_power),
        _Rule(re.compile(r"(?<![\w~/])(~) ?(?=[\d.$€£¥])|(?<=[\w)])(\^)(?=[\w(])"), _say_symbol),
        _Rule(re.compile(r"(?<=\d) ?(‰)"), _say_symbol),
        _Rule(_YEAR, _say_year),
        _Rule(re.compile(r"(?<!\w)(?:#|(?:No\.|Nr\.|[Nn]\.?[º°]|№) ?)(?=\d)"), _say_number_sign),
    ]
    if language in _TIMES:
        rules.append(_Rule(re.compile(rf"{_START}(\d+)(x(?!\w)| ?[a-z]/(?=\d))"), _say_times))
    if language == "en":
        names = {"months": months, "short": abbreviations.MONTHS}
        rules.append(_Rule(abbreviations.NUMERAL, _say_numeral))
        rules.append(_Rule(_FEET, _say_feet))
        rules.append(_Rule(_FEET_OR_INCHES, _say_feet_or_inches))
        rules.append(_Rule(re.compile(_ENGLISH_DAY.format(**names)), _say_english_day))
        rules.append(_Rule(re.compile(_BRITISH_DAY.format(**names)), _say_british_day))
    if language != "en":
        rules.append(_Rule(re.compile(r"(?<=\d) : (?=\d)"), _say_division))
    if language in _NUMERALS:
        rules.append(_Rule(re.compile(_NUMERALS[language][0]), _say_roman))
    if language in _ORDINALS:
        rules.append(_Rule(re.compile(_START + _ORDINALS[language]), _say_ordinal))
    if language == "de":
        rules.append(
            _Rule(
                re.compile(_GERMAN_DAY.format(months=months, next=rf"\d{{1,2}}\. ?(?:{months})")),
                _say_german_day,
            )
        )
        rules.append(_Rule(_GERMAN_DATE, _say_german_date))
        rules.append(_Rule(_GERMAN_DECADE, _say_german_decade))
        rules.append(_Rule(_GERMAN_ORDINAL, _say_german_ordinal))
    if language in NOUNS:
        noun = rf"(?<![\w.,:/$€£-])(?<!\d ){number}(?= ({NOUNS[language]})(?!\w))"
        rules.append(_Rule(re.compile(noun), _say_counted))
    if language in counters.COUNTED:
        rules.append(_Rule(re.compile(counters.COUNTED[language]), _say_counter))
    if locale.is_regional and reads_digits:
        rules.append(_Rule(re.compile(rf"(?<![\w.,]){number}"), _say_regional))
    if not locale.is_spaced:
        rules += _unspaced_rules()
    if language == "en":
        rules += _english_words(reads_digits)
    if not reads_digits and locale.writes_numbers:
        rules += _worded_rules(number)
    return tuple(rules if locale.is_spaced else map(_beside_letters, rules))


def _named_range(locale: Locale) -> re.Pattern[str]:
    """Pattern of a dash between two days of the week, or behind a month and before a date."""
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


def _minus(locale: Locale) -> str:
    """Pattern of a negative sign: not of a hyphen, nor of the dash of a range such as "3月-5月"."""
    if locale.is_spaced:
        return r"(?<![^\s(\[\"'“‘=:×÷*^<>≤≥±])(?:[-−]|(?<!\d )–)"
    return r"(?<![A-Za-z0-9)\]%°])(?<!\d[^\x00-\x7f])(?<!\d[^\x00-\x7f]{2})[-−–]"


def _scale_rules(locale: Locale, number: str, money: str, per: str) -> Iterator[_Rule]:
    """Rules for large numbers that are written short: "$5M", "5 Mio. €"."""
    short = "|".join(
        re.escape(each).replace(r"\.", r"\b\.?") + r"(?!\w)"
        for each in sorted(locale.scales, key=len, reverse=True)
    )
    if short:
        pattern = (
            rf"(?<![\w.,])(?:(?P<first>{money}) ?)?(?P<amount>{number}) ?(?P<scale>{short})"
            rf"(?: ?(?P<last>{money}))?{per}(?!\w)"
        )
        yield _Rule(re.compile(pattern), _say_scale)


def _unspaced_rules() -> Iterator[_Rule]:
    """Rules for voices that read digits only, in languages without spaces beside numbers."""
    yield _Rule(re.compile(r"(?<![\d.])\d+\.\d+(?![\d.]*\d)"), _say_decimals)
    yield _Rule(re.compile(r"[&=+×÷<>±≤≥≠√]"), _say_symbol)
    yield _Rule(re.compile(r"(?<=\d) (?=[一-鿿])"), _say_nothing)  # Japanese "14 時" is no hour


def _beside_letters(rule: _Rule) -> _Rule:
    """The rule for a language in which a letter of its own may stand beside a number."""
    flags = rule.pattern.flags & ~re.UNICODE | re.ASCII
    return _Rule(re.compile(rule.pattern.pattern, flags), rule.say)


@lru_cache(maxsize=64)
def _written_short(locale: Locale) -> tuple[_Rule, ...]:
    """Rules for words that are written short."""
    patterns = abbreviations.PATTERNS.get(locale.language, ())
    rules = [_Rule(pattern, _say_in_full) for pattern in patterns]
    if locale.language == "en" or not locale.is_spaced:
        return tuple(rules)
    day, dash = f"({'|'.join(locale.full_days)})", rf" ?(?:[-–]|\b{locale.symbols['–']}\b) ?"
    days = rf"(?i)\b(?:{day}\.?({dash}){day}\b\.?(?!\w)|(?=(?-i:[A-Z])|\w{{3}}){day}\.(?=,? \d))"
    return (_Rule(_SHORT_MONTH, _say_month), _Rule(re.compile(days), _say_days), *rules)


def _english_words(reads_digits: bool) -> Iterator[_Rule]:
    """Rules for English words that look at numbers in words."""
    if not reads_digits:
        yield _Rule(abbreviations.APART, _say_nothing)
        yield _Rule(abbreviations.HALF_DAY, _say_half_day)
    yield _Rule(abbreviations.DAY, _say_in_full)
    yield _Rule(abbreviations.MONTH, _say_in_full)


def _worded_rules(number: str) -> Iterator[_Rule]:
    """Rules for voices that read neither digits nor symbols."""
    yield _Rule(re.compile("[™®©]"), _say_nothing)
    yield _Rule(re.compile(r"[%°&=+×÷@<>±≤≥≠√]"), _say_symbol)
    yield _Rule(re.compile(r"(≈) ?"), _say_symbol)
    yield _Rule(re.compile(r"(?<![\d.])\d+(?:\.\d+)+(?![\d.]*\d)"), _say_dotted)
    yield _Rule(re.compile(r"(?<![\w.,])\.(\d+)(?!\w|[.,]\d)"), _say_leading_point)
    yield _Rule(re.compile(rf"(?<!\d){number}"), _say_number)
    yield _Rule(re.compile(r"\d+"), _say_digits)


# What is said. Numbers are left in digits; the last rules turn them into words.


def _value(number: str, locale: Locale) -> float:
    return float(number.replace(locale.group, "").replace(locale.decimal, "."))


def _say_narrow(match: re.Match[str], locale: Locale) -> list[_Part]:
    return [(unicodedata.normalize("NFKC", match[0]), 0)]


def _say_mark(match: re.Match[str], locale: Locale) -> list[_Part]:
    is_short = match[1] in ("1", "3") and not match.string.startswith(" de", match.end())
    return [(match[1] + ("er" if locale.language == "es" and is_short else "º"), 0)]


def _say_iso_date(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    year, month, day = (int(group) for group in match.groups())
    start = match.start()
    at = (0, match.start(2) - start, match.start(3) - start)
    return _date((year, month, day), match, locale, at)


def _say_stamp(match: re.Match[str], locale: Locale) -> list[_Part]:
    """A date and a time; the zone is said, seconds only where there are some."""
    date, time, seconds, zulu, sign, hours = match.groups()
    at = match.start(2) - match.start()
    zone = " UTC" if zulu or sign else ""
    if sign and int(hours):
        zone += f" {locale.symbols[sign]} {int(hours)}"
    return [(date, 0), (f", {time}{seconds or ''}", at), (zone, len(match[0]) - 1)]


def _say_date(match: re.Match[str], locale: Locale) -> list[_Part] | None:
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
) -> list[_Part] | None:
    """A date in the language's order; its parts are at the three indices, in that order."""
    year, month, day = date
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    before = match.string[max(0, match.start() - 4) : match.start()]
    ending = "n" if locale.language == "de" and before.casefold() != "der " else ""
    words = {
        "day": day,
        "ordinal": f"{locale.ordinal(day)}{ending}" if locale.writes_numbers else day,
        "month": locale.months[month - 1],
        "year": _year(year, locale),
    }
    return [(part.format(**words), index) for part, index in zip(locale.date, at, strict=True)]


def _year(year: int, locale: Locale) -> str:
    return locale.year(year) if locale.language in _YEAR_CUES else str(year)


def _say_spelled(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    if sum(character.isdigit() for character in match[0]) < 7:
        return None
    parts: list[_Part] = []
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


def _say_code(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    before = match.string[max(0, match.start() - 40) : match.start()]
    after = match.string[match.end() : match.end() + 20]
    is_code = codes.is_code(match[0], before, after, locale.language)
    return _digit_by_digit(match) if is_code else None


def _say_long_number(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    """Digits one by one of what counts nothing and is no part of a sum."""
    before = match.string[max(0, match.start() - 2) : match.start()]
    after = match.string[match.end() : match.end() + 9]
    is_term = re.search("[+=×*] ?$", before) or re.match(r" ?[+=×*]", after)
    return None if is_term or codes.counts(after) else _digit_by_digit(match)


def _digit_by_digit(match: re.Match[str]) -> list[_Part]:
    """Digits one by one; more than five are said in groups of three, with a rest of up to five."""
    parts: list[_Part] = []
    for run in re.finditer(r"\d+", match[0]):
        for index in range(*run.span()):
            at, rest = index - run.start(), run.end() - index
            is_group_start = not at or (at % 3 == 0 and rest > 2 and len(run[0]) > 5)
            gap = "" if not parts else ", " if is_group_start else " "
            parts.append((gap + match[0][index], index))
    return parts


def _say_clock(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    hour, minute, end = int(match[1]), int(match[2]), match[3] or ""
    at = match.start(2) - match.start()
    last = match.start(3) - match.start() if end else at
    is_half_day = end[:1] in "AaPp" and bool(end)
    said_end = f" {end}" if is_half_day else ""
    if locale.language == "en":
        if not minute:
            return [(str(hour), 0), (said_end or (" o'clock" if hour <= 12 else " hundred"), last)]
        return [(str(hour), 0), (f" {_english_minute(minute)}", at), (said_end, last)]
    name = locale.hour.removesuffix("s") if hour < 2 else locale.hour
    said, word = locale.hour_of_day(hour), f" {name}" if name else ""
    if not minute:
        return [(said, 0), (word + said_end, last)]
    return [(f"{said}{word}", 0), (f" {minute}{locale.minute}{said_end}", last)]


def _english_minute(minute: int) -> str:
    return f"oh {minute}" if minute < 10 else str(minute)


def _say_duration(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    """A duration such as "1h 30m", in which "m" is minutes; later rules say its units."""
    places = [*re.finditer(r"(\d+) ?([hms])", match[0])]
    units = "".join(place[2] for place in places)
    if units not in "hms" and units != "hs":
        return None
    names = {"h": "h", "m": "min", "s": "s"}
    return [
        (f"{' ' if place.start() else ''}{place[1]} {names[place[2]]}", place.start())
        for place in places
    ]


def _say_seconds(match: re.Match[str], locale: Locale) -> list[_Part]:
    minute, second = int(match[2]), int(match[3])
    is_english = locale.language == "en"
    return [
        (match[1], 0),
        (f" {_english_minute(minute) if is_english else minute}", match.start(2) - match.start()),
        (f" {_english_minute(second) if is_english else second}", match.start(3) - match.start()),
    ]


def _say_ratio(match: re.Match[str], locale: Locale) -> list[_Part]:
    at = match.start(2) - match.start()
    return [(match[1], 0), (f" {locale.symbols[':']} ", at - 1), (match[2], at)]


def _say_division(match: re.Match[str], locale: Locale) -> list[_Part]:
    return [(f" {locale.symbols['÷']} ", 1)]


def _say_range(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    digits = [re.sub(r"\D", "", part) for part in match.groups()]
    is_falling = len(digits[0]) > 2 and int(digits[0]) > int(digits[1])
    if re.fullmatch("(1[5-9]|20)\\d\\d-\\d\\d", "-".join(digits)):  # two years, as in "1998-99"
        is_falling = digits[1] <= digits[0][2:]
    is_name = is_falling or re.fullmatch(r"7\d7", match[1])
    if is_name and match[1].isdecimal():  # a name, as in "747-400" and "737-800", and no time
        return None
    at = match.start(2) - match.start()
    return [(match[1], 0), (f" {locale.symbols['–']} ", at - 1), (match[2], at)]


def _say_clock_range(match: re.Match[str], locale: Locale) -> list[_Part]:
    at = match.start(2) - match.start()
    first = match[1].replace(".", ":") if match[2].endswith("Uhr") else match[1]
    return [(first, 0), (f" {locale.symbols['–']} ", len(match[1])), (match[2], at)]


def _say_money(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    number, sign, at = match["amount"], match["sign"], match.start("amount") - match.start()
    if price := re.fullmatch(r"(\d+)[.,](\d\d)", number):  # "3.50 €" in German
        number = f"{price[1]}{locale.decimal}{price[2]}"
    whole, _, decimals = number.partition(locale.decimal)
    sign_at = max(at, match.start("sign") - match.start())
    if len(decimals) != 2 or locale.minor_currency(sign, 2) is None:
        value = 1 if _is_before_noun(match, locale) else _value(number, locale)
        name = locale.currency(sign, value)
        number = _counted(number if whole else f"0{number}", name, locale)
        return [(number, at), (f" {name}", sign_at), *_per(match, locale)]
    places = (at, at + len(whole) + 1, sign_at)
    return [*_price(whole or "0", decimals, sign, locale, places), *_per(match, locale)]


def _is_before_noun(match: re.Match[str], locale: Locale) -> bool:
    """Whether an English amount describes a noun, as in "a $50 gift card", and has no plural."""
    before = match.string[max(0, match.start() - 9) : match.start()]
    return (
        locale.language == "en"
        and _BEFORE_AMOUNT.search(before) is not None
        and _NOUN.match(match.string, match.end()) is not None
    )


def _counted(number: str, noun: str, locale: Locale) -> str:
    """A number before its noun: in words if they agree with it, as in "una hora"."""
    digits = number.replace(locale.group, "")
    return (digits.isdecimal() and locale.counted(int(digits), noun)) or number


def _per(match: re.Match[str], locale: Locale) -> Iterator[_Part]:
    """What follows a price, as in "$5/user/month"."""
    start = match.start("per") - match.start()
    for place in re.finditer(r"/ ?([^\W\d_]+)", match["per"]):
        name = place[1]
        unit = locale.unit(name, 1) if name in UNITS else None
        yield f" {locale.symbols['per']} ", start + place.start()
        yield unit[1] if unit else locale.periods.get(name, name), start + place.start(1)


def _say_cents(match: re.Match[str], locale: Locale) -> list[_Part]:
    name = locale.minor_currency("$", _value(match[1], locale))
    return [(match[1], 0), (f" {name}", len(match[0]) - 1)]


def _say_currency(match: re.Match[str], locale: Locale) -> list[_Part]:
    return [(_apart(locale.currency(match[0], 5), match), 0)]


def _say_scale(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    """A large number that is written short; one without a dot counts beside a currency only."""
    number, short = match["amount"], match["scale"]
    sign, dotted = match["first"] or match["last"], f"{short.removesuffix('.')}."
    is_dotted = dotted in locale.scales
    if not sign and not is_dotted:
        return None
    scale = locale.scale(dotted if is_dotted else short, _value(number, locale))
    at, place = (match.start(name) - match.start() for name in ("amount", "scale"))
    said = [(_counted(number, scale, locale), at), (f" {scale}", place)]
    if not sign:
        return [*said, (_last_dot(match), len(match[0]) - 1), *_per(match, locale)]
    after = match.start("last") - match.start() if match["last"] else place
    amount = 1 if _is_before_noun(match, locale) else 5
    return [*said, (_of(short, locale.currency(sign, amount), locale), after), *_per(match, locale)]


def _of(short: str, currency: str, locale: Locale) -> str:
    """A currency after a large number, as in "5 millions d'euros"; thousands need no word."""
    if not locale.of or locale.scales.get(short) == locale.scales["k"]:
        return f" {currency}"
    if locale.language == "fr" and currency[0] in "aeiouy":
        return f" d'{currency}"
    return f" {locale.of} {currency}"


def _last_dot(match: re.Match[str]) -> str:
    """The dot at the end of a match, which also ends the sentence at the end of a text."""
    is_last = not match.string[match.end() :].strip()
    return "." if is_last and match[0].endswith(".") else ""


def _price(
    whole: str, decimals: str, sign: str, locale: Locale, at: tuple[int, int, int]
) -> Iterator[_Part]:
    """A price with a minor unit: "3 dollars and 50 cents", "3 Euro 50".

    Args:
        whole: the number of major units.
        decimals: the number of minor units: two digits.
        sign: sign of the currency.
        locale: the language.
        at: indices of whole, decimals and sign.
    """
    major, minor = _value(whole, locale), int(decimals)
    name = locale.minor_currency(sign, minor) or ""
    cents = f"{_counted(str(minor), name, locale)} {name}"
    is_sign_first = at[2] == at[0]
    if not major and minor:
        yield cents, at[1]
        return
    dollars = f" {locale.currency(sign, major)}"
    yield _counted(whole, dollars[1:], locale), at[0]
    if not minor:
        yield dollars, at[2]
        return
    yield dollars, at[0]
    join = f" {locale.before_minor} " if locale.before_minor else " "
    yield (
        join + (cents if locale.names_minor_currency else str(minor)),
        (at[1] if is_sign_first else at[2]),
    )


def _say_decade(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    if locale.language != "en":
        return None
    if ten := match[3] or match[4]:
        tens = locale.cardinal(int(ten) * 10) if int(ten) > 1 else ""
        return [(_plural(tens), 0)] if tens else None
    return [(_plural(locale.year(int(f"{match[1]}{match[2]}0"))), 0)]


def _plural(word: str) -> str:
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def _say_fraction(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    whole, upper, lower = match.groups()
    if whole is None and (date := _day_of_month(match, locale)):
        return date
    at = match.start(2) - match.start()
    said = _fraction(int(upper), int(lower), locale)
    if whole is None:
        return [(said, at)]
    return [(whole, 0), (f" {locale.symbols['&']} {said}", at)]


def _day_of_month(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    """A date without a year, as in "on 5/3", where what stands beside it says so."""
    before = match.string[max(0, match.start() - 16) : match.start()]
    after = match.string[match.end() : match.end() + 16]
    is_cued = _DAY_CUE.search(before) or (
        _WEAK_DAY_CUE.search(before) and match[0] not in locale.fractions
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


def _fraction(upper: int, lower: int, locale: Locale) -> str:
    part = None if (upper, lower) == (24, 7) else locale.part(upper, lower)
    if said := locale.fractions.get(f"{upper}/{lower}") or part:
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


def _say_single_fraction(match: re.Match[str], locale: Locale) -> list[_Part]:
    """A fraction that is one character, such as "2½"."""
    written = unicodedata.normalize("NFKC", match[2]).replace("\u2044", "/")
    at = match.start(2) - match.start()
    upper, _, lower = written.partition("/")
    said = _fraction(int(upper), int(lower), locale)
    if match[1] is None:
        return [(said, at)]
    return [(match[1], 0), (f" {locale.symbols['&']} {said}", at)]


def _say_unit(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    number, symbol = match[1], match[2]
    if symbol == "s" and " " not in match[0]:  # a plural, as in "737s"
        return None
    value = 1 if _is_before_noun(match, locale) else _value(number, locale)
    said = locale.unit(symbol, value)
    if said is None:
        return None
    before, after = said
    at = match.start(2) - match.start()
    number = _counted(number, after, locale)
    return [(f"{before} " if before else "", 0), (number, 0), (f" {after}" if after else "", at)]


def _say_counted(match: re.Match[str], locale: Locale) -> list[_Part]:
    return [(_counted(match[0], match[1], locale), 0)]


def _say_counter(match: re.Match[str], locale: Locale) -> list[_Part]:
    return [(counters.counted(match, locale.language), 0)]


def _say_minus(match: re.Match[str], locale: Locale) -> list[_Part]:
    before = match.string[match.start() - 1 : match.start()] if match.start() else ""
    gap = " " if before.isdigit() or before == ")" or match[0].startswith(" ") else ""
    return [(f"{gap}{locale.symbols['−' if gap else '-']} ", len(match[0]) // 2)]


def _say_minus_first(match: re.Match[str], locale: Locale) -> list[_Part]:
    """A negative price whose sign stands behind its currency: "$-5"."""
    return [(f"{locale.symbols['-']} {match[1]}", 0)]


def _say_power(match: re.Match[str], locale: Locale) -> list[_Part]:
    """A power; a 1 is a mark of a note, and is not said."""
    power = unicodedata.normalize("NFKC", match[0]).replace("−", f"{locale.symbols['-']} ")
    if power == "1":
        return []
    if locale.language == "en" and power in ("2", "3"):
        said = "squared" if power == "2" else "cubed"
    else:
        said = f"{locale.symbols['^']} {power}"
    after = match.string[match.end() : match.end() + 1]
    return [(f" {said}" + (" " if after.isalnum() else ""), 0)]


def _say_year(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    cues = _YEAR_CUES.get(locale.language)
    if cues is None:
        return None
    before = match.string[max(0, match.start() - 12) : match.start()]
    is_cued = re.search(rf"(?:^|\W)(?:{cues}) ?$", before) is not None
    is_number = before.endswith(f"{locale.symbols['-']} ")
    if is_number or (not is_cued and not "1700" <= match[1] <= "1999"):
        return None
    return [(_year(int(match[1]), locale), 0)]


def _say_number_sign(match: re.Match[str], locale: Locale) -> list[_Part]:
    return [(f"{locale.symbols['#']} ", 0)]


def _say_english_day(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    at, last = (match.start(group) - match.start() for group in (2, 3))
    said = [(f"{abbreviations.month(match[1])} ", 0), (locale.ordinal(int(match[2])), at)]
    return [*said, (f" to {locale.ordinal(int(match[3]))}", last)] if match[3] else said


def _say_british_day(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    day, at = int(match[1]), match.start(2) - match.start()
    if not 1 <= day <= 31:
        return None
    return [(f"the {locale.ordinal(day)} of ", 0), (abbreviations.month(match[2]), at)]


def _say_spaced_range(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    """A range where the first number is the smaller one, as in "2 - 3 days"; else a difference."""
    before = match.string[max(0, match.start() - 12) : match.start()]
    numbers = re.findall(rf"{_number(locale)}", match[0])
    first, second = (_value(number, locale) for number in numbers)
    is_open = first <= 12 and _OPEN.search(before)
    if re.search(r"[=+×÷*] $", before) or (first >= second and not is_open):
        return None
    at = match.start(2) - match.start()
    return [(match[1], 0), (f" {locale.symbols['–']} ", at - 2), (match[2], at)]


def _say_feet(match: re.Match[str], locale: Locale) -> list[_Part]:
    at = match.start(2) - match.start()
    return [(f"{match[1]} foot", 0), (f" {match[2]}", at)]


def _say_regional(match: re.Match[str], locale: Locale) -> list[_Part]:
    """A number for a voice that expects the marks of the language, not of its region."""
    number = match[0].replace(locale.group, "")
    return [(number.replace(locale.decimal, f" {locale.point} "), 0)]


def _say_feet_or_inches(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    """A length with one mark; a mark that may end a quotation is none."""
    if re.search(r'(?<!\d)["“]', match.string[max(0, match.start() - 80) : match.start()]):
        return None
    one, more = ("foot", "feet") if match[2] else ("inch", "inches")
    is_one = match[1] == "1" or (match[4] and not match[3])
    return [(match[1], 0), (f" {one if is_one else more}", len(match[1]))]


def _say_nothing(match: re.Match[str], locale: Locale) -> list[_Part]:
    return []


def _say_half_day(match: re.Match[str], locale: Locale) -> list[_Part]:
    return [(f" {match[2].upper()}.M.", len(match[1]))]


def _say_numeral(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    number, is_ordinal = abbreviations.numeral(match)
    said = f"the {locale.ordinal(number)}" if is_ordinal else locale.cardinal(number)
    at = match.start(2) - match.start()
    return [(match[0][:at], 0), (said, at)]


def _say_roman(match: re.Match[str], locale: Locale) -> list[_Part]:
    """A Roman numeral in digits, which later rules and voices read as an ordinal."""
    number, at = abbreviations.roman(match[2]), match.start(2) - match.start()
    return [(match[1] or "", 0), (f"{number}{_NUMERALS[locale.language][1]}", at)]


def _say_named_range(match: re.Match[str], locale: Locale) -> list[_Part]:
    first = match[match.lastindex or 0]
    return [(first, 0), (f" {locale.symbols['–']} ", len(first))]


def _say_decimals(match: re.Match[str], locale: Locale) -> list[_Part]:
    whole, _, decimals = match[0].partition(".")
    at = len(whole)
    return [(whole, 0), (f" {locale.point} ", at), (" ".join(decimals), at + 1)]


def _say_in_full(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    said = abbreviations.in_full(match, locale.language)
    return None if said is None else [(said, 0)]


def _say_days(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    """A day that is written short before its date, or two of them, as in "Mo-Fr"."""
    if match[4]:
        is_sea = match[4] == "mar" and " de " not in match.string[match.end() : match.end() + 8]
        return None if is_sea else [(locale.full_days[match[4].casefold()], 0)]
    if match[1].islower() and len(match[1]) < 3:  # "so-so" is no Sunday
        return None
    first, last = (locale.full_days[match[group].casefold()] for group in (1, 3))
    at = match.start(2) - match.start()
    return [
        (first, 0),
        (f" {locale.symbols['–']} ", at),
        (last + _last_dot(match), at + len(match[2])),
    ]


def _say_month(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    """A month that is written short behind its day, as in "3 janv. 2026"."""
    short = match[1].casefold()
    months = [name for name in locale.months if name.casefold().startswith(short)]
    return [(months[0], 0)] if len(months) == 1 and len(months[0]) > len(short) else None


def _say_german_day(match: re.Match[str], locale: Locale) -> list[_Part]:
    before = match.string[: match.start()].rstrip().rpartition(" ")[2]
    is_alone = not match[2] and not match.string.startswith("bis", match.end())
    is_subject = before.casefold() == "der" or (not before and is_alone)
    said = f"{locale.ordinal(int(match[1]))}{'' if is_subject else 'n'} "
    if not match[2]:
        return [(said, 0)]
    between = locale.symbols["–" if match[2] != "/" else "&"]
    return [(said, 0), (f"{between} ", match.start(2) - match.start())]


def _say_german_date(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    """A date without a year after a word that dates have before them; "1.2." may be a version."""
    day, month = int(match[1]), int(match[2])
    before = match.string[max(0, match.start() - 12) : match.start()]
    if not (1 <= day <= 31 and 1 <= month <= 12 and _GERMAN_DATE_CUE.search(before)):
        return None
    said = locale.ordinal(day) + ("" if before.casefold().endswith("der ") else "n")
    at = match.start(2) - match.start()
    return [(f"{said} ", 0), (locale.months[month - 1], at), (_last_dot(match), len(match[0]) - 1)]


def _say_german_decade(match: re.Match[str], locale: Locale) -> list[_Part]:
    return [(f"{_year(int(match[1]), locale)}er", 0)]


def _say_german_ordinal(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    before = match.string[max(0, match.start() - 12) : match.start()]
    cue, ending = _GERMAN_CUE.search(before), _GERMAN_ENDINGS.get(match[2])
    if cue is None and ending is None:
        return None
    if cue is not None and cue["strong"] is None:
        ending = "n" if cue["weak"] is None else ""
    return [(f"{locale.ordinal(int(match[1]))}{'r' if ending is None else ending} ", 0)]


def _say_ordinal(match: re.Match[str], locale: Locale) -> list[_Part]:
    said, suffix = locale.ordinal(int(match[1].replace(",", ""))), match[2]
    if suffix == "ª":
        said = re.sub(r"o\b", "a", said)
    elif locale.language == "es" and suffix == "er":
        said = said.removesuffix("o")
    elif suffix.startswith("re"):
        said = said.removesuffix("er") + "ère"
    return [(said, 0)]


def _say_address(match: re.Match[str], locale: Locale) -> list[_Part]:
    signs = _ADDRESS_SIGNS[locale.language].split("|")
    names = {sign: locale.symbols[sign] for sign in "@."} | dict(zip("/_-", signs, strict=True))
    letters = len("www") if match[0].startswith("www.") else 0  # a network reads it as a word
    return [
        (f" {names[character]} " if character in names else character, index)
        if index >= letters
        else (f"{character} " if index < letters - 1 else character, index)
        for index, character in enumerate(match[0])
    ]


def _say_times(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    said = _TIMES[locale.language].get(match[2].strip())
    at = match.end(1) - match.start()
    return [(match[1], 0), (f" {_apart(said, match)}", at)] if said else None


def _say_symbol(match: re.Match[str], locale: Locale) -> list[_Part]:
    sign = match[match.lastindex or 0].replace("≈", "~")
    return [(_apart(locale.symbols[sign], match), 0)]


def _say_dotted(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    """A version or an address: its numbers are spelled, so that no two of them are decimals."""
    if locale.group == "." and re.fullmatch(r"\d{1,3}(?:\.\d{3})+", match[0]):
        return None
    if locale.decimal == "." and match[0].count(".") == 1:
        return None
    name = f" {locale.point if locale.language == 'en' else locale.symbols['.']} "
    places = [*re.finditer(r"\d+|\.", match[0])]
    said = [name if each[0] == "." else _whole(each[0], locale) for each in places]
    said[0] = _apart(said[0], match)
    return [(text, each.start()) for text, each in zip(said, places, strict=True)]


def _whole(digits: str, locale: Locale) -> str:
    """A number in words; one that begins with a zero is said digit by digit."""
    is_spelled = digits.startswith("0") or len(digits) > 12
    return _digits(digits, locale) if is_spelled else locale.cardinal(int(digits))


def _say_leading_point(match: re.Match[str], locale: Locale) -> list[_Part]:
    """Decimals without a number before them, as in ".5"."""
    return [(f"{locale.point} ", 0), (_digits(match[1], locale), 1)]


def _say_number(match: re.Match[str], locale: Locale) -> list[_Part] | None:
    whole, _, decimals = match[0].replace(locale.group, "").partition(locale.decimal)
    if (len(whole) > 1 and whole.startswith("0")) or len(whole) > 12:
        return None
    said = locale.cardinal(int(whole))
    if said == "eins" and re.match(" [A-ZÄÖÜ]", match.string[match.end() :]):
        said = "ein"
    if decimals:
        said += f" {locale.point} {_digits(decimals, locale)}"
    return [(_apart(said, match), 0)]


def _say_digits(match: re.Match[str], locale: Locale) -> list[_Part]:
    return [(_apart(_digits(match[0], locale), match), 0)]


def _digits(digits: str, locale: Locale) -> str:
    return " ".join(locale.cardinal(int(digit)) for digit in digits)


def _apart(said: str, match: re.Match[str]) -> str:
    """`said` with spaces where a letter or digit stands beside what it is said for."""
    before = match.string[match.start() - 1 : match.start()] if match.start() else ""
    after = match.string[match.end() : match.end() + 1]
    return (" " if before.isalnum() else "") + said + (" " if after.isalnum() else "")
