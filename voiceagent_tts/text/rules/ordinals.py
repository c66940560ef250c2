"""Ordinal numbers, and Roman numerals, which are read as ordinals."""

import re
from collections.abc import Iterator

from voiceagent_tts.text import abbreviations
from voiceagent_tts.text.locales import Locale
from voiceagent_tts.text.rules.rule import START, Part, Rule, last_dot, text_after, text_before

_DEGREE_ORDINAL = (
    r"(?<![\w.,])(?:(?<=\b(?:il|al|el|no|do|ao) )|(?<=\b(?:del|dal|nel|sul) )|(?<=\bo )"
    r"|(?=\d\d?° (?:de )?(?:{months}|piano|piso|posto|puesto|andar|lugar)\b))(\d\d?)°(?= [a-z])"
)
"""The degree sign for the mark of an ordinal in Italian, Spanish and Portuguese."""
_ROMAN = r"((?=[IVX])X{0,3}(?:IX|IV|V?I{0,3})(?<=[IVX]))"
_RULER = re.compile(
    r"\b(?:Kaisers?|Königs?|Königin|Papst(?:es)?|Herzogs?|Zar|rey|reina|emperador|papa|rei|rainha"
    r"|imperador|dom|don) $",
    re.IGNORECASE,
)
"""The title of a ruler before a name."""
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


def degree_signs(locale: Locale) -> Iterator[Rule]:
    """Rules for the degree sign where it is written for the mark of an ordinal."""
    if locale.language in ("it", "es", "pt"):
        yield Rule.of(_DEGREE_ORDINAL.format(months="|".join(locale.months)), _say_mark)


def numerals(locale: Locale) -> Iterator[Rule]:
    """Rules for Roman numerals."""
    if locale.language == "en":
        yield Rule(abbreviations.NUMERAL, _say_numeral)
    if names := locale.words.rulers:
        dot = r"\.?" if locale.language == "de" else ""  # the mark of its ordinals
        yield Rule.of(rf"\b((?:{names}) )(?![IVX]\. ?[A-ZÀ-Þ]){_ROMAN}(?!\w){dot}", _say_ruler)
    if pattern := locale.words.numerals:
        yield Rule.of(pattern.replace("{roman}", _ROMAN), _say_roman)


def rules(locale: Locale) -> Iterator[Rule]:
    """Rules for ordinals in digits."""
    if pattern := locale.words.ordinals:
        yield Rule.of(START + pattern, _say_ordinal)
    if locale.language == "de":
        yield Rule(_GERMAN_ORDINAL, _say_german_ordinal)


def _say_mark(match: re.Match[str], locale: Locale) -> list[Part]:
    is_short = match[1] in ("1", "3") and not match.string.startswith(" de", match.end())
    return [(match[1] + ("er" if locale.language == "es" and is_short else "º"), 0)]


def _say_numeral(match: re.Match[str], locale: Locale) -> list[Part] | None:
    number, is_counted = abbreviations.roman(match[2]), match[1] is not None
    said = locale.cardinal(number) if is_counted else f"the {locale.ordinal(number)}"
    at = match.start(2) - match.start()
    return [(match[0][:at], 0), (said, at)]


def _say_ruler(match: re.Match[str], locale: Locale) -> list[Part] | None:
    """The place of a ruler in German, Spanish and Portuguese; "V" and "X" may be initials."""
    is_initial = match[2] in ("V", "X") and not _RULER.search(text_before(match, 20))
    has_mark = match[0].endswith(".") and re.match(r",| [a-zäöü]", text_after(match, 2))
    if is_initial and not has_mark:
        return None
    number, name = abbreviations.roman(match[2]), match[1].rstrip()
    said = locale.ordinal(number)
    if locale.language == "de":
        said = f"der {said}" if not name.endswith(("a", "th")) else f"die {said}"
    elif number > 10:
        said = str(number)
    elif name.endswith(("a", "Isabel")):
        said = f"{said[:-1]}a"
    return [(match[1], 0), (said + last_dot(match), match.start(2) - match.start())]


def _say_roman(match: re.Match[str], locale: Locale) -> list[Part]:
    """A Roman numeral in digits, which later rules and voices read as an ordinal.

    In words at the end of a German sentence, whose dot is no mark of an ordinal.
    """
    number, at = abbreviations.roman(match[2]), match.start(2) - match.start()
    said = f"{number}{locale.words.numeral_mark}"
    if locale.language == "de" and match[1] and re.match(r"\. [A-ZÄÖÜ]", text_after(match, 3)):
        said = locale.cardinal(number)
    return [(match[1] or "", 0), (said, at)]


def _say_ordinal(match: re.Match[str], locale: Locale) -> list[Part]:
    said, suffix = locale.ordinal(int(match[1].replace(",", ""))), match[2]
    if suffix == "ª":
        said = re.sub(r"o\b", "a", said)
    elif locale.language == "es" and suffix == "er":
        said = said.removesuffix("o")
    elif suffix.startswith(("re", "èr")):
        said = said.removesuffix("er") + "ère"
    return [(said, 0)]


def _say_german_ordinal(match: re.Match[str], locale: Locale) -> list[Part] | None:
    before = text_before(match, 12)
    cue, ending = _GERMAN_CUE.search(before), _GERMAN_ENDINGS.get(match[2])
    if cue is None and ending is None:
        return None
    if cue is not None and cue["strong"] is None:
        ending = "n" if cue["weak"] is None else ""
    return [(f"{locale.ordinal(int(match[1]))}{'r' if ending is None else ending} ", 0)]
