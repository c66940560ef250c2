"""Numbers, money, dates, units and symbols of a text in the words that a speaker says for them.

For voices that read what is written: `$3.50` becomes `3 dollars and 50 cents`, `5 - 3` becomes `5
minus 3`, `2026-11-25` a date. Numbers stay digits for a voice that reads digits itself, and become
words for one that does not. Every character that is said has the offset of what it is said for, so
the words of the history stay the client's.
"""

import logging
import re
from collections.abc import Sequence
from functools import lru_cache

from voiceagent_tts.text import abbreviations
from voiceagent_tts.text.cleaning_rules import Speakable
from voiceagent_tts.text.locales import Locale, locale_of
from voiceagent_tts.text.readings import Said
from voiceagent_tts.text.rules import (
    amounts,
    dates,
    ordinals,
    ranges,
    short,
    signs,
    spelled,
    times,
    worded,
)
from voiceagent_tts.text.rules.rule import Part, Rule

_logger = logging.getLogger(__name__)


def normalize(said: Said, language: str, *, reads_digits: bool) -> Said:
    """Return what a speaker says for a cleaned text.

    The time is linear in the length of the text. Pronunciations in IPA stay as they are, and so
    does what a rule fails for: no text raises an error. The language is a code, perhaps with a
    region; one without rules changes nothing. A voice that `reads_digits` reads cardinal numbers,
    percent signs and other common symbols itself; others get words.
    """
    locale = locale_of(language)
    if locale is None or _is_plain(said.text, locale):
        return said
    draft = Speakable(said.text, tuple(range(len(said.text))))
    for rule in _rules(locale, reads_digits):
        draft = _apply(rule, draft, locale, said.ipa)
    return _with_origins(said, draft)


def _is_plain(text: str, locale: Locale) -> bool:
    if not _PLAIN.fullmatch(text):
        return False
    patterns = [rule.pattern for rule in short.rules(locale)]
    if locale.language == "en":
        patterns += abbreviations.LATE
    else:
        patterns += [rule.pattern for rule in ordinals.numerals(locale)]
    return not any(pattern.search(text) for pattern in patterns)


_PLAIN = re.compile(r"(?:[^\d\W_Α-ω¼-¾⅐-⅞²³¹⁰⁴-⁹]|[\s,;:!?'\"()’“”…。，、！？：；「」]|\.(?!\w))*+")
"""Texts without digits, symbols and dots inside words."""


def _apply(
    rule: Rule, draft: Speakable, locale: Locale, ipa: Sequence[tuple[range, str]]
) -> Speakable:
    """Apply a rule to a text whose offsets are indices in the given one."""
    parts: list[str] = []
    offsets: list[int] = []
    at = 0
    for match in rule.pattern.finditer(draft.spoken):
        span = draft.offsets[match.start() : match.end()]
        if any(place.start <= span[-1] and span[0] < place.stop for place, _ in ipa):
            continue
        said = _said(rule, match, locale, span)
        if said is None:
            continue
        parts.append(draft.spoken[at : match.start()])
        offsets += draft.offsets[at : match.start()]
        for text, origin in said:
            parts.append(text)
            offsets += [origin] * len(text)
        at = match.end()
    if not at:
        return draft
    return Speakable("".join([*parts, draft.spoken[at:]]), (*offsets, *draft.offsets[at:]))


def _said(
    rule: Rule, match: re.Match[str], locale: Locale, span: Sequence[int]
) -> list[Part] | None:
    """Return the words for a match, with origins instead of indices; None to leave it as it is.

    It also stays if the rule fails: a number in digits is better than a turn without an end.
    """
    try:
        said = rule.say(match, locale)
        return None if said is None else [(text, span[index]) for text, index in said]
    except Exception as error:  # for unforeseen texts
        _logger.error("%d characters are said as written: %s", len(span), type(error).__name__)
        return None


def _with_origins(said: Said, draft: Speakable) -> Said:
    ipa = tuple((_moved(span, draft.offsets), sounds) for span, sounds in said.ipa)
    return Said(draft.spoken, tuple(said.offsets[origin] for origin in draft.offsets), ipa)


def _moved(span: range, origins: Sequence[int]) -> range:
    places = [place for place, origin in enumerate(origins) if origin in span]
    return range(places[0], places[-1] + 1)


@lru_cache(maxsize=64)
def _rules(locale: Locale, reads_digits: bool) -> tuple[Rule, ...]:
    """The rules of a language, in the order in which they are applied.

    Most leave numbers in digits; the last turn them into words.
    """
    rules = [
        *short.rules(locale),
        *signs.ADDRESSES,
        *ordinals.degree_signs(locale),
        signs.narrow(locale),
        *dates.in_digits(locale),
        *spelled.rules(locale),
        *ranges.spaced(locale),
        *signs.negative(locale),
        *times.RULES,
        signs.RATIO,
        ranges.unspaced(locale),
        *amounts.prices(locale),
        dates.DECADES,
        *amounts.parts_and_units(locale),
        *signs.formulas(locale),
        dates.YEARS,
        signs.NUMBER_SIGN,
        *signs.times(locale),
        *ordinals.numerals(locale),
        *(amounts.FEET_AND_INCHES if locale.language == "en" else ()),
        *dates.days(locale),
        *ordinals.rules(locale),
        *amounts.counts(locale),
        *(worded.for_voices_that_read_digits(locale) if reads_digits else ()),
        *(() if locale.is_spaced else worded.unspaced()),
        *(short.beside_words(reads_digits) if locale.language == "en" else ()),
    ]
    if not reads_digits and locale.writes_numbers:
        rules += worded.for_other_voices(locale)
    return tuple(rules if locale.is_spaced else map(_beside_letters, rules))


def _beside_letters(rule: Rule) -> Rule:
    """The rule for a language whose own letters may stand next to a number."""
    flags = rule.pattern.flags & ~re.UNICODE | re.ASCII
    return Rule(re.compile(rule.pattern.pattern, flags), rule.say)
