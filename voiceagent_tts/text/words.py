"""Words: the verbatim spans of a text that get times, and between which an interruption can cut.

A word is a run without white space. In Han and Kana it is one base character with the small
kana, long-vowel and combining marks that follow it; a Latin or digit run inside such text is one
word. Closing punctuation joins the word before it, opening punctuation the word after it. A token
without a letter or digit (emoji, `---`) joins the word before it, or the first word if there is
none before; the white space between is then part of that word.
"""

import re
import unicodedata
from collections.abc import Iterator

from voiceagent_tts.core import Word

_HAN = (
    "\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U000323af"
)
_KANA = (
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
    "\U0001aff0-\U0001afff\U0001b000-\U0001b16f"
)
_JOINS_SYLLABLE = (
    "ぁぃぅぇぉっゃゅょゎゕゖァィゥェォッャュョヮヵヶ\u31f0-\u31ff\uff67-\uff6fー\uff70"
    "\uff9e\uff9f\u3099-\u309c"
)
_WIDE_PUNCTUATION = (
    "\u3001-\u3003\u3008-\u3011\u3014-\u301f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
)
"""Punctuation that needs no white space around it, so a Latin run ends here too."""

_SYLLABLE = rf"(?=[^\W_])[{_HAN}{_KANA}][{_JOINS_SYLLABLE}]*"
_LETTER = rf"[^\W_{_HAN}{_KANA}]"
_RUN = rf"{_LETTER}(?:[^{_HAN}{_KANA}{_WIDE_PUNCTUATION}]*{_LETTER})?"
_CORE = re.compile(rf"{_SYLLABLE}|{_RUN}")  # a word from its first letter or digit to its last

_TOKEN = re.compile(r"\S+")
UNSPACED = f"{_HAN}{_KANA}{_WIDE_PUNCTUATION}"
"""Characters of scripts that put no white space between words, as in a class of a pattern."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
_SYLLABIC = re.compile(rf"[{_HAN}{_KANA}]")
_NEXT_WORD = re.compile(
    rf"(?<=\S)(?=\s)|(?<=[{_HAN}{_KANA}])(?![{_JOINS_SYLLABLE}])(?=[{_HAN}{_KANA}])"
)
_SPOKEN = re.compile(r"[^\W_]")


def is_spoken(text: str) -> bool:
    """Whether `text` has a letter or digit of any script."""
    return _SPOKEN.search(text) is not None


def is_syllabic(character: str) -> bool:
    """Whether `character` is Han or Kana: scripts that put no white space between words."""
    return _SYLLABIC.match(character) is not None


def next_word_start(text: str, start: int) -> int | None:
    """Index from `start` on at which a word is over; None if there is none.

    It has white space, or the second of two syllables of Han or Kana.
    """
    found = _NEXT_WORD.search(text, start)
    return None if found is None else found.start()


def split_words(text: str, char_base: int = 0) -> list[Word]:
    """Split `text` into its words.

    Args:
        text: any text; it need not begin or end at a word border.
        char_base: offset of its first character in the context's text.

    Returns:
        Words in order, without overlap; every letter and digit of `text` is in exactly one. Empty
        if `text` has no letter or digit.
    """
    return [
        Word(text[start:end], char_base + start, char_base + end) for start, end in _spans(text)
    ]


def _spans(text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    unspoken_start: int | None = None  # start of the tokens before the first word
    for token in _TOKEN.finditer(text):
        starts = list(_word_starts(token.group()))
        if not starts:
            if spans:
                spans[-1] = (spans[-1][0], token.end())
            elif unspoken_start is None:
                unspoken_start = token.start()
            continue
        borders = [token.start() + start for start in starts]
        if unspoken_start is not None:
            borders[0], unspoken_start = unspoken_start, None
        spans += zip(borders, [*borders[1:], token.end()], strict=True)
    return spans


def _word_starts(token: str) -> Iterator[int]:
    """Start of each word in a run without white space."""
    if _UNSPACED.search(token) is None:
        if is_spoken(token):
            yield 0
        return
    previous_end: int | None = None
    for core in _CORE.finditer(token):
        yield 0 if previous_end is None else _opening_start(token, previous_end, core.start())
        previous_end = core.end()


def _opening_start(token: str, gap_start: int, gap_end: int) -> int:
    """Start of the opening punctuation at the end of the gap between two words."""
    start = gap_end
    while start > gap_start and _opens(token[start - 1]):
        start -= 1
    return start


def _opens(character: str) -> bool:
    return character in "¿¡#@" or unicodedata.category(character) in ("Ps", "Pi", "Sc")
