"""English words that are written short, in full: titles, streets, days, months, Roman numerals.

For voices whose networks read words as they are written; espeak-ng knows these itself. This module
knows no voice and no offsets.
"""

import re

_TITLES = {
    "Dr": "Doctor", "Mr": "Mister", "Mrs": "Missus", "Prof": "Professor", "Sgt": "Sergeant",
    "Gen": "General", "Lt": "Lieutenant", "Col": "Colonel", "Capt": "Captain", "Sen": "Senator",
    "Rep": "Representative", "Gov": "Governor", "Rev": "Reverend",
}  # fmt: skip
_DAYS = {
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Thu": "Thursday",
    "Thur": "Thursday", "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday",
}  # fmt: skip
_STREETS = {"St": "Street", "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "Hwy": "Highway"}
_WORDS = {
    "vs": "versus", "approx": "approximately", "dept": "department", "etc": "et cetera",
    "Jr": "Junior", "Sr": "Senior", "e.g": "for example", "i.e": "that is",
}  # fmt: skip
_MONTHS = {
    "Jan": "January", "Feb": "February", "Mar": "March", "Apr": "April", "May": "May",
    "Jun": "June", "Jul": "July", "Aug": "August", "Sept": "September", "Sep": "September",
    "Oct": "October", "Nov": "November", "Dec": "December",
}  # fmt: skip
MONTHS = "|".join(_MONTHS)
"""Pattern of the months as they are written before a day or after it, with a dot or without."""

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
"""After a letter alone, which is a numeral and no contraction and no initial."""
_NOT_I = r"(?! (?:am|think|guess|know|want|hope|believe|mean|have|love|like|need)\b)"
_LAST = r"(?=['’]s\b| of\b|[,;:.!?)]|$)"
"""After the first ruler of a name; "Mary I think" is none."""
_DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50}

TITLE = re.compile(rf"\b({'|'.join(_TITLES)})\.(?= ?[A-Z]| and (?:{'|'.join(_TITLES)})\.)")
_WEEK = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_NEXT_DAY = rf"(?:(?<={_WEEK} to )|(?<={_WEEK} & )|(?<={_WEEK} and ))"
_TIME = r"(?:at )?\d{1,2}(?: \d\d| oh \d)? (?:[AP]\.M|o'clock|to )"
DAY = re.compile(
    rf"\b({'|'.join(_DAYS)})(?:\.(?=,| [a-z0-9]| (?:{MONTHS}))"
    rf"|(?=,? (?:{MONTHS})[a-z]* [a-z]| (?:to|&|and) {_WEEK}|,? {_TIME}))"
    rf"|({_NEXT_DAY}{_WEEK}|Tues?|Thu(?:rs?)?|Fri)(?![\w’'-]|\.\w)"
)
MONTH = re.compile(rf"\b({MONTHS})(?:\.(?=,| [a-z0-9])|(?= (?:twenty|nineteen) ))")
STREET = re.compile(rf"(?<=\w )({'|'.join(_STREETS)})\.(?!\w)")
SAINT = re.compile(r"\bSt\.(?= ?[A-Z])")
WORD = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, _WORDS))})\.(?!\w)")
NUMERAL = re.compile(
    rf"\b(?:({_COUNTED}) (?=(?:{_ROMAN}|[VX]{_ONE}|I{_ONE}{_NOT_I}))"
    rf"|(?:{_RULERS}) (?=(?:{_ROMAN}|[VX]{_ONE}|I{_ONE}{_LAST})))([IVXL]+)"
)
"""What is counted, or the name of a ruler, and a Roman numeral."""
HALF_DAY = re.compile(r"(?<=\d)( ?)([ap])\.?m\b\.?", re.IGNORECASE)
APART = re.compile(r"\s+(?=[!?;:,.](?:\s|$))")
"""The space before a mark."""
_ALL = (TITLE, DAY, MONTH, STREET, SAINT, WORD, NUMERAL, APART)


def has_any(text: str, *, in_digits: bool) -> bool:
    """Whether something is written short that says so without a digit.

    Args:
        text: English text.
        in_digits: whether only what a voice that reads digits is told matters.
    """
    return any(pattern.search(text) for pattern in ((NUMERAL,) if in_digits else _ALL))


def in_full(match: re.Match[str]) -> str | None:
    """Return what a match of one of the patterns of words says; None for no abbreviation."""
    before, after = match.string[: match.start()], match.string[match.end() :]
    word = match[match.lastindex] if match.lastindex else "St"
    if match.re is STREET and word == "St" and not _follows_a_name(before, after):
        return None
    said = "Saint" if match.re is SAINT else (_TITLES | _DAYS | _MONTHS | _STREETS | _WORDS)[word]
    is_last = not after.strip() or (match.re is STREET and re.match(r" [A-Z]", after))
    is_dotted = match[0].endswith(".")
    return f"{said}." if is_last and is_dotted else said  # the dot also ends the sentence


def _follows_a_name(before: str, after: str) -> bool:
    """Whether "St." is a street: after a name, and not between a word and the name of a saint."""
    words = before.split()
    has_name = bool(words) and words[-1][:1].isupper()
    return has_name and (len(words) > 1 or not re.match(r" ?[A-Z]", after))


def numeral(match: re.Match[str]) -> tuple[int, bool]:
    """Return the number of a match of `NUMERAL`, and whether it is an ordinal."""
    return roman(match[2]), match[1] is None


def roman(numeral: str) -> int:
    """Return the value of a Roman numeral."""
    digits = [_DIGITS[letter] for letter in numeral]
    signs = [-1 if one < max(digits[at:]) else 1 for at, one in enumerate(digits)]
    return sum(sign * one for sign, one in zip(signs, digits, strict=True))


def month(written: str) -> str:
    """Return the full name of a month."""
    return _MONTHS.get(written.rstrip("."), written)
