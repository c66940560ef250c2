"""The full forms of abbreviations: titles, streets, days, months, and Roman numerals.

The tables of each language also say after which dots a sentence may continue.
"""

import re
from collections.abc import Iterable

from voiceagent_tts.text.language_files import read_file

_FORMS: dict[str, dict[str, dict[str, str]]] = read_file("abbreviations")


def _with_capitals(forms: dict[str, str]) -> dict[str, str]:
    capitals = {short.capitalize(): full[0].upper() + full[1:] for short, full in forms.items()}
    return capitals | forms


NAMED = {code: _with_capitals(forms["named"]) for code, forms in _FORMS.items()}
"""Abbreviations before a name or a number."""
WORDS = {code: _with_capitals(forms["words"]) for code, forms in _FORMS.items()}
"""Abbreviations that may also end a sentence."""
_DAYS, _ROOMS, _STREETS, _MONTHS = (
    _FORMS["en"][kind] for kind in ("days", "rooms", "streets", "months")
)
MONTHS = "|".join(_MONTHS)
"""Pattern of abbreviated months, which stand before a day or after it, with or without a dot."""
BEFORE_A_NAME = frozenset("aprox approx inkl zzgl nº др напр т.е им тел ул".split())
"""More abbreviations before a name or a number, which sentencex 1.0.32 lacks."""
WORDS_FIRST = frozenset("me ok Ok OK in may an da auto Auto bien vie ver".split())
"""Abbreviations of one language in sentencex 1.0.32 that are common words of another."""

_SHORT_MONTHS = (
    r"(?<=\d )(?:de )?(?i:janv?|f[eé]vr?|feb|m[aä]r|abr|a[pv]r|mag|giu|lug|juil|ag?o|aug|sept?|set"
    r"|o[ckt]t|out|nov|d[ei][cz]|déc|ene|gen)"
)


def _any(shorts: Iterable[str]) -> str:
    """Pattern of any of these; after a dot inside them there may be a space."""
    return "|".join(re.escape(short).replace(r"\.", r"\. ?") for short in shorts)


def _at_end(named: Iterable[str], words: Iterable[str]) -> re.Pattern[str]:
    """Pattern of a text that ends with an abbreviation, a short month or a single letter."""
    others = rf"{_any(words)}|\w*str|[^\W\d_]|{_SHORT_MONTHS}"
    return re.compile(rf"(?<![\wऀ-෿])(?:(?P<named>{_any(named)})|{others})\.\Z")


SHORT = {code: _at_end(NAMED[code], WORDS[code]) for code in NAMED}
SHORT["en"] = _at_end(NAMED["en"], WORDS["en"] | _DAYS | _MONTHS | _STREETS | _ROOMS)
"""Pattern of a text that ends with an abbreviation such as "p.m.", by language."""

_COUNTED = (
    "Chapter|Part|Act|Scene|Volume|Book|Section|Title|Article|Appendix|Phase|Type|Class|Level|War"
    "|Bowl|Round|Stage|Episode|Season"
)
_RULERS = (
    "Henry|Louis|Charles|Edward|George|Elizabeth|William|James|Richard|Philip|Philippe|Frederick"
    "|Alexander|Nicholas|Ivan|Catherine|Mary|Pius|Benedict|Francis|Leo|Napoleon|Ramses|Ludwig|Otto"
)
_ROMAN = r"(?=[IVXL]{2,}(?!\w))(?:XL|L?X{0,3})(?:IX|IV|V?I{0,3})(?!\w)"
_ONE = r"(?!['’](?!s\b)|\w|\. ?[A-Z])"
"""After a single letter that is a numeral, not a contraction or an initial."""
_NOT_I = r"(?! (?:am|think|guess|know|want|hope|believe|mean|have|love|like|need)\b)"
_LAST = r"(?=['’]s\b| of\b|[,;:.!?)]|$)"
"""After the first ruler of a name, but not in "Mary I think"."""
_DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50}

_STREET = re.compile(rf"(?<=\w )({_any(_STREETS)})\b\.?(?!\w)")
_HOUSE = re.compile(r"(?<![\w.,$])\d+[A-Za-z]? (?:[A-Z][\w.'’-]* |\d+(?:st|nd|rd|th) ){1,4}\Z")
"""A house number and the name of a street."""
_SAINT = re.compile(r"\b(St)\.(?= ?[A-Z])")
_TITLE = re.compile(
    rf"\b(?:({_any(NAMED['en'])})\.(?= ?[A-Z\d]| and (?:{_any(NAMED['en'])})\.)"
    rf"|({_any(_ROOMS)})\.?(?= (?:\d|[A-Z]\b(?!['’])))|(Mt|Ft)(?= [A-Z]))"
)
_WEEK = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_NEXT_DAY = rf"(?:(?<={_WEEK} to )|(?<={_WEEK} & )|(?<={_WEEK} and ))"
_TIME = r"(?:at )?\d{1,2}(?: \d\d| oh \d)? (?:[AP]\.M|o'clock|to )"
DAY = re.compile(
    rf"\b({_any(_DAYS)})(?:\.(?=,| [a-z0-9]| (?:{MONTHS}))"
    rf"|(?=,? (?:{MONTHS})[a-z]* [a-z]| (?:to|&|and) {_WEEK}|,? {_TIME}))"
    rf"|({_NEXT_DAY}{_WEEK}|Tues?|Thu(?:rs?)?|Fri)(?![\w’'-]|\.\w)"
)
MONTH = re.compile(rf"\b({MONTHS})(?:\.(?=,| [a-z0-9])|(?= (?:twenty|nineteen) ))")


def _word(code: str) -> re.Pattern[str]:
    """Pattern of `WORDS` of a language, and of the end of "Hauptstr."."""
    short = rf"(?!Max\.(?! \d))({_any(WORDS[code])})"  # the first is a name
    return re.compile(rf"(?:(?<![\w.-]){short}|(?<=[a-zäöüß])(str))\.(?!\w)")


_OTHERS = {
    "de": r"(?!(?:(?<=\b[Aa]m )|(?<=\bbis )|(?<=\bvom ))Fr\.)",
    "fr": r"(?!(?<=taille )M\.|av\. J)",
}
"""Exceptions of `NAMED`: a Friday, a size, "av. J.-C."."""


def _name(code: str) -> re.Pattern[str]:
    """Pattern of `NAMED` of a language before a name, a number or a word; not of an initial."""
    longest_first = sorted(NAMED[code], key=len, reverse=True)
    bare = {"fr": r"|(?<=\w\w)(?= [A-ZÀ-Þ])", "it": r"|(?<=\.ra)(?= )|(?<=\.ssa)(?= )"}
    following = rf"\.(?= ?[A-ZÀ-ÞЁА-Я]|(?<!\bFr\.) ?(?:\d|(?<= )\w)){bare.get(code, '')}"
    other = _OTHERS.get(code, "")
    return re.compile(
        rf"(?<![\w.-])(?<!\b[A-ZА-Яа-я]\. ){other}({_any(longest_first)})(?:{following})"
    )


PATTERNS: dict[str, tuple[re.Pattern[str], ...]] = {
    code: (_name(code), _word(code)) for code in NAMED
}
PATTERNS["en"] = (_STREET, _SAINT, _TITLE, _word("en"))
"""Patterns of abbreviations, by language, in the order in which they are applied."""
_FULL = {code: WORDS[code] | NAMED[code] for code in NAMED}
_FULL["en"] |= _DAYS | _MONTHS | _ROOMS

NUMERAL = re.compile(
    rf"\b(?:({_COUNTED}) (?=(?:{_ROMAN}|[VX]{_ONE}|I{_ONE}{_NOT_I}))"
    rf"|(?:{_RULERS}) (?=(?:{_ROMAN}|[VX]{_ONE}|I{_ONE}{_LAST})))([IVXL]+)"
)
"""What is counted (group 1), or the name of a ruler, and a Roman numeral (group 2)."""
HALF_DAY = re.compile(r"(?<=\d)( ?)([ap])\.?m\b\.?", re.IGNORECASE)
APART = re.compile(r"\s+(?=[!?;:,.](?:\s|$))")
"""The space before a mark."""
LATE = (NUMERAL, DAY, MONTH, APART)
"""Patterns of English that are applied after those of numbers."""


def in_full(match: re.Match[str], language: str) -> str | None:
    """Return the full form of a match of `PATTERNS`, `DAY` or `MONTH`; None if it has none."""
    start, end = match.span()
    before, after = match.string[max(0, start - 60) : start], match.string[end : end + 2]
    word, is_street = match[match.lastindex or 0].replace(". ", "."), match.re is _STREET
    if is_street and not _is_street(match[0], before, after):
        return None
    table = _STREETS if is_street else {"St": "Saint"} if match.re is _SAINT else _FULL[language]
    if (full := table.get(word)) is None:
        return None
    one, _, many = full.partition("/")
    said = one if not many or re.search(r"(?<![\d.,])1 $", before) else many
    is_last = not after.strip() or (is_street and re.match(r" [A-Z]", after))
    return f"{said}." if is_last and match[0].endswith(".") else said  # it ends the sentence, too


def _is_street(written: str, before: str, after: str) -> bool:
    """Whether "St" or "Ave." is a street: after a house number, or after a name alone."""
    is_saint = written.startswith("St") and before.endswith(("Mount ", "Lake ", "Port "))
    if is_saint or _HOUSE.search(before):
        return not is_saint
    words, name = before.split(), written.removesuffix(".")
    has_name = re.match(r"[A-Z]|\d+(?:st|nd|rd|th)", words[-1]) is not None
    is_alone = re.match(r" ?[A-Z]", after) is None
    if name == "St":
        return has_name and (is_alone or (written != name and len(words) > 1))
    is_clear = written != name or after[1:].isdigit()
    return name not in ("Dr", "Ct", "Pl") and (is_clear or (has_name and is_alone))


def roman(numeral: str) -> int:
    """Return the value of a Roman numeral."""
    digits = [_DIGITS[letter] for letter in numeral]
    signs = [-1 if one < max(digits[at:]) else 1 for at, one in enumerate(digits)]
    return sum(sign * one for sign, one in zip(signs, digits, strict=True))


def month(written: str) -> str:
    """Return the full name of a month."""
    return _MONTHS.get(written.rstrip("."), written)
