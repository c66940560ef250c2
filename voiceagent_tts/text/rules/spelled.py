"""Numbers that are said digit by digit: telephones, cards, accounts and codes."""

import re
from collections.abc import Iterator
from functools import lru_cache

from voiceagent_tts.text.locales import Locale
from voiceagent_tts.text.rules.rule import (
    CURRENCY_SIGN,
    END,
    MONEY,
    START,
    Part,
    Rule,
    text_after,
    text_before,
    units_pattern,
)

_PHONE = (
    rf"{START}(?:{{own}}\+\d{{1,3}}(?:[ .-]?\(\d{{1,4}}\))?(?:[ .-]?\d{{1,4}}){{2,6}}"
    r"|\(\d{2,5}\)[ -]?\d{2,8}(?:[ .-]\d{2,4}){0,3}"
    r"|(?:\d-)?\d{3}([-.])\d{3}\1\d{4}|\d{3} \d{3} \d{4}|\d{3}-\d{4}(?<!00)"
    rf"|0\d{{1,4}}[ /-]\d{{3,}}(?:[ -]?\d{{2,}})*|0\d(?:[ .-]\d\d){{4}}"
    r"|\d{4}(?: \d{4}){3}|(?=(?:-?\d){9})(?=[\d-]*\d{3})\d+(?:-\d+){2,}+(?! ?=)|\d{3}-\d\d-\d{4}"
    rf"|[A-Z]{{2}}\d\d(?: ?(?=[A-Z]*\d)[\dA-Z]{{4}}){{2,7}}(?: ?\d{{1,3}})?){END}"
)
"""Numbers that are spelled: telephones, cards, accounts; not a countdown such as "5-4-3-2-1"."""
_CODE = r"\d{3,}(?:-\d+)*(?: \d{3}(?!\d))*"
"""Pattern of what may be a code."""

_ENDS = (
    r"end(?:s|ing) in|last four|endet auf|terminant par|se termine par|termina(?:d[ao])? (?:en|em)"
    r"|(?:termina|finisce) (?:con|in|per)|final|eindigt op|尾号|末尾|下4桁|끝자리"
)
"""Words before the last digits of a card or an account."""
_LINKS = (
    r"is|was|number|no\.|id|code|digits|numéro|n°|ist|lautet|est|es|è|é|postale?|de \w+|di \w+"
    r"|है|नंबर|是|为|係|は|が|는|은|가|이"
)
"""Words between a cue and its number."""
_CALL = (
    r"call|dial|text|notruf|wählen sie|llam\w+(?: al?)?|marc\w+(?: el)?|chiam\w+(?: il)?"
    r"|lig\w+(?: para)?(?: o)?|bel|拨打|撥打"
)
_SHORT = re.compile(r"\d11|11\d|12\d|19\d|999|988")
_STATE = re.compile(
    "(?:A[LKZR]|C[AOT]|D[CE]|FL|GA|HI|I[ADLN]|K[SY]|LA|M[ADEINOST]|N[CDEHJMVY]|O[HKR]|PA|RI|S[CD]"
    r"|T[NX]|UT|V[AT]|W[AIVY])(?<=\b..) $"
)
_FUNCTION_WORDS = (
    "and|or|to|for|then|when|is|was|has|as|on|at|in|from|with|by|if|but|now|please|und|oder|ist|hat"
    "|für|auf|wurde|et|ou|est|pour|y|o|es|está|para|fue|ed|e|è|per|en|voor|и|или"
)
_COUNTS = re.compile(
    rf" ?%| (?!(?:{_FUNCTION_WORDS})\b)[^\W\d_]|(?!です|[をでにとがはな입이을를으로])[^\W\d_]",
    re.IGNORECASE,
)
"""Text after a number that counts something: a noun or a counter."""
_MANY = re.compile(r" ?[^\W\d_\x00-\x7f]| (?:\w{3,}s|people|\w{4,}(?:[ei]|en))\b")
"""A plural noun or a counter after a number, which is then not a telephone number."""


def rules(locale: Locale) -> Iterator[Rule]:
    """Rules for what is spelled in a language."""
    no_unit = rf"(?! ?(?:{MONEY}|{units_pattern(locale)})(?!\w))(?![가-힣一-鿿])"
    long_number = rf"(?<!{CURRENCY_SIGN})\d{{7,15}}(?<!00){no_unit}"
    own = "".join(f"{pattern}|" for pattern in locale.words.phones)
    yield Rule.of(_PHONE.replace("{own}", own), _say_spelled)
    yield Rule.of(rf"{START}{_CODE}{END}", _say_code)
    yield Rule.of(f"{START}{long_number}{END}", _say_long_number)


def _say_spelled(match: re.Match[str], locale: Locale) -> list[Part] | None:
    if sum(character.isdigit() for character in match[0]) < 7:
        return None
    parts: list[Part] = []
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


def _say_code(match: re.Match[str], locale: Locale) -> list[Part] | None:
    before = text_before(match, 40)
    after = text_after(match, 20)
    is_code = _is_code(match[0], before, after, locale)
    return _digit_by_digit(match) if is_code else None


def _say_long_number(match: re.Match[str], locale: Locale) -> list[Part] | None:
    """Say the digits one by one, unless the number counts something or is a term of a sum."""
    before = text_before(match, 2)
    after = text_after(match, 9)
    is_term = re.search("[+=×*] ?$", before) or re.match(r" ?[+=×*]", after)
    return None if is_term or _counts(after) else _digit_by_digit(match)


def _digit_by_digit(match: re.Match[str]) -> list[Part]:
    """Digits one by one; more than five are said in groups of three, with a rest of up to five."""
    parts: list[Part] = []
    for run in re.finditer(r"\d+", match[0]):
        for index in range(*run.span()):
            at, rest = index - run.start(), run.end() - index
            is_group_start = not at or (at % 3 == 0 and rest > 2 and len(run[0]) > 5)
            gap = "" if not parts else ", " if is_group_start else " "
            parts.append((gap + match[0][index], index))
    return parts


def _is_code(number: str, before: str, after: str, locale: Locale) -> bool:
    """Return whether people say the digits of a match of `_CODE`, by the text next to it."""
    if (
        locale.language == "en"
        and re.fullmatch(r"\d{5}(?:-\d{4})?", number)
        and _STATE.search(before)
    ):
        return True
    cue, end, call = _cues(locale)
    if cue.search(before):
        return len(number) > 4 or not _counts(after)
    if end.search(before):
        is_year = re.match("19|20", number) is not None
        return re.fullmatch(r"\d{3,4}", number) is not None and not is_year and not _counts(after)
    is_call = _SHORT.fullmatch(number) is not None and call.search(before) is not None
    return is_call and not _MANY.match(after)


def _counts(after: str) -> bool:
    """Return whether a number counts what follows it."""
    return _COUNTS.match(after) is not None


@lru_cache
def _cues(locale: Locale) -> list[re.Pattern[str]]:
    start = r"(?<!\w)" if locale.is_spaced else ""
    gap = r"[^\w.!?;。！？]"
    links = rf"(?:{gap}*(?:{_LINKS}))*{gap}{{0,3}}"
    patterns = (
        rf"(?:{'|'.join(locale.words.code_cues)}){links}",
        rf"(?:{_ENDS}){links}",
        rf"(?:{_CALL}) ?",
    )
    return [re.compile(f"{start}{pattern}$", re.IGNORECASE) for pattern in patterns]
