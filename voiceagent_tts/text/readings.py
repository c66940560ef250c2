"""What is said for a masked text: its readings in place of their masks, cleaned for speech.

This module knows no lexicon, no tags and no engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from voiceagent_tts.core import Reading
from voiceagent_tts.text.hygiene import Speakable, speakable


@dataclass(frozen=True, slots=True)
class Said:
    """The characters to speak.

    Args:
        text: the characters.
        offsets: offset in the context's text of each of them; non-decreasing. All characters of a
            reading have the offset of its span.
        ipa: pronunciations in IPA, by the range of the characters that they replace.
    """

    text: str
    offsets: tuple[int, ...]
    ipa: tuple[tuple[range, str], ...] = ()


def said(text: str, char_start: int, readings: Sequence[Reading]) -> Said:
    """Return what is said for a text.

    Args:
        text: masked text.
        char_start: offset of its first character in the context's text.
        readings: readings of spans in it, in order; a reading is said where its span begins.
    """
    letters, origins, spans = _substituted(text, char_start, readings)
    cleaned = speakable(letters)
    ipa = tuple(_ipa_ranges(cleaned, spans))
    return Said(cleaned.spoken, tuple(origins[offset] for offset in cleaned.offsets), ipa)


def said_word(word: str, char_start: int, readings: Sequence[Reading]) -> str:
    """Return a masked word with its readings in letters, not cleaned; arguments as for `said`."""
    return _substituted(word, char_start, readings)[0]


def _substituted(
    text: str, char_start: int, readings: Sequence[Reading]
) -> tuple[str, list[int], list[tuple[range, str]]]:
    """Letters, their offsets in the context's text, and the spans of letters with an IPA."""
    parts: list[str] = []
    origins: list[int] = []
    spans: list[tuple[range, str]] = []
    at = char_start
    for reading in readings:
        if reading.char_start < at:  # it was said with the text before
            at = reading.char_end
            continue
        parts += (text[at - char_start : reading.char_start - char_start], reading.said)
        origins += range(at, reading.char_start)
        if reading.ipa is not None:
            spans.append((range(len(origins), len(origins) + len(reading.said)), reading.ipa))
        origins += [reading.char_start] * len(reading.said)
        at = reading.char_end
    parts.append(text[max(0, at - char_start) :])
    origins += range(at, char_start + len(text))
    return "".join(parts), origins, spans


def _ipa_ranges(cleaned: Speakable, spans: Sequence[tuple[range, str]]) -> list[tuple[range, str]]:
    """Where the spans with an IPA are in the cleaned text; those removed are left out."""
    found: list[tuple[range, str]] = []
    for span, ipa in spans:
        places = [place for place, offset in enumerate(cleaned.offsets) if offset in span]
        if places:
            found.append((range(places[0], places[-1] + 1), ipa))
    return found
