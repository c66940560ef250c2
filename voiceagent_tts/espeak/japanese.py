"""Kanji to kana: espeak's Japanese voice reads kana but spells out every kanji.

Readings come from janome (extra `japanese`), one morpheme at a time, with spaces between them so
that espeak reports where each begins. Every kana keeps the offset of the characters it stands for.
"""

import unicodedata
from collections.abc import Iterator
from typing import Any

from voiceagent_tts.text.morphemes import japanese_tokenizer
from voiceagent_tts.text.readings import Said

_KANA = "".join(map(chr, (*range(0x3041, 0x30A0), *range(0x30A1, 0x3100))))
_NO_READING = "*"
_MONTH = "ガツ"
"""Reading of 月 after digits; janome reads it as the moon."""


def lacks_readings(text: str) -> bool:
    """Whether `text` has kanji without readings, because janome is not installed."""
    return japanese_tokenizer() is None and any(map(_is_kanji, text))


def _is_kanji(character: str) -> bool:
    return unicodedata.name(character, "").startswith("CJK ") and character.isalpha()


def to_kana(spoken: Said) -> tuple[Said, frozenset[int]]:
    """Replace kanji by their readings; without janome the text is returned unchanged.

    Returns:
        The text, and those of its offsets whose place in it is an estimate.
    """
    tokenizer = japanese_tokenizer()
    if tokenizer is None:
        return spoken, frozenset()
    parts: list[str] = []
    offsets: list[int] = []
    guessed: set[int] = set()
    cursor, was_read = 0, False
    for token in tokenizer.tokenize(spoken.text):
        surface = str(token.surface)
        start = spoken.text.index(surface, cursor)
        cursor = start + len(surface)
        reading = _reading(token, spoken.text[start - 1 : start] if start else "")
        is_read = reading != surface
        if parts and (is_read or was_read) and surface[0].isalnum():
            parts.append(" ")
            offsets.append(spoken.offsets[start])
        parts.append(reading)
        offsets += (spoken.offsets[start + place] for place in _places(surface, reading))
        guessed.update(spoken.offsets[start + 1 : start + _head_length(surface)])
        was_read = is_read
    return Said("".join(parts), tuple(offsets)), frozenset(guessed)


def _reading(token: Any, before: str) -> str:
    if token.surface == "月" and before.isdigit():
        return _MONTH
    return str(token.surface if token.phonetic == _NO_READING else token.phonetic)


def _places(surface: str, reading: str) -> Iterator[int]:
    """Index in `surface` of each character of `reading`.

    Kana at the end of a surface are at the end of its reading too; the rest of the reading is
    divided evenly among the kanji before them.
    """
    head = _head_length(surface)
    read_head = len(reading) - (len(surface) - head)
    if head == 0 or read_head <= 0:
        head, read_head = len(surface), len(reading)
    for index in range(read_head):
        yield index * head // read_head
    yield from range(head, head + len(reading) - read_head)


def _head_length(surface: str) -> int:
    return len(surface.rstrip(_KANA))
