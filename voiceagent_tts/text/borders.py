"""Borders: the places where a text may be split, judged from the characters around them.

A border is an index: the split lies before the character there. Texts are sequences of characters,
because the segmenter keeps them so. This module keeps no state.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache

from voiceagent_tts.text.punctuation import CLAUSE_ENDS, SENTENCE_ENDS, WIDE_CLAUSE_ENDS
from voiceagent_tts.text.words import split_words

_CLOSING_CHARS = 16
"""Longest run of closing quotes, brackets, emphasis and emoji after a mark."""

_FIRST_WORDS_CHARS = 256
"""Characters that contain any first word, with marks and markup around it."""

_BLOCK_START = re.compile(r"(?:[-*+•‣◦–]|\d{1,3}[.)]|#{1,6}|>)\s|\||`{3}")
_BLOCK_START_CHARS = 7


@lru_cache(maxsize=8192)
def closes(character: str) -> bool:
    """Whether a character may stand between a mark and the border: quotes, emphasis, emoji."""
    if character in "\"'*_~`":
        return True
    category = unicodedata.category(character)
    return category in ("Pe", "Pf", "Pi", "So", "Sk", "Mn", "Me", "Cf")


@lru_cache(maxsize=8192)
def _opens(character: str) -> bool:
    return unicodedata.category(character) in ("Pi", "Ps")


def visible_end(text: Sequence[str], end: int) -> int:
    """Index after the last character before `end` that is not white space."""
    while end and text[end - 1].isspace():
        end -= 1
    return end


def marks_before(text: Sequence[str], end: int) -> tuple[int, int]:
    """Span of the sentence marks at the end of `text[:end]`, without closing quotes after them."""
    stop = _unclosed_end(text, end)
    start = stop
    while start and text[start - 1] in SENTENCE_ENDS:
        start -= 1
    return start, stop


def _unclosed_end(text: Sequence[str], end: int) -> int:
    stop = end
    while stop > max(0, end - _CLOSING_CHARS) and closes(text[stop - 1]):
        stop -= 1
    return stop


def may_follow_wide_mark(character: str) -> bool:
    """Whether a wide mark before `character` ends its sentence: the character does not close it."""
    return _opens(character) or not (closes(character) or character in SENTENCE_ENDS)


def is_clause_end(text: Sequence[str], at: int) -> bool:
    """Whether a clause ends at `at`: after punctuation, or at the end of a line."""
    stop = _unclosed_end(text, at)
    if not stop or text[stop - 1].isspace():
        return False
    if text[at].isspace():
        return text[at] == "\n" or text[stop - 1] in CLAUSE_ENDS
    return text[stop - 1] in WIDE_CLAUSE_ENDS and may_follow_wide_mark(text[at])


def is_word_end(text: Sequence[str], at: int) -> bool:
    """Whether white space ends a token at `at`."""
    return text[at].isspace() and not text[at - 1].isspace()


def best_border(text: Sequence[str], start: int, limit: int) -> int:
    """Choose where to split a text that must end by `limit`; a clause end sounds best.

    Args:
        text: characters up to and including `limit`.
        start: index of the first letter or digit; the border lies after it.
        limit: last index that may be chosen.

    Returns:
        The last clause end in the last two thirds, else the last white space there, else the last
        word border, else (inside one long word) an index that splits no combined character.
    """
    least = start + (limit - start) // 3
    for is_border in (is_clause_end, is_word_end):
        border = last_border(text, least, limit, is_border)
        if border is not None:
            return border
    words = split_words("".join(text[start : limit + 1]))
    is_one_word = len(words) < 2
    border = _character_border(text, start, limit) if is_one_word else start + words[-1].char_start
    return visible_end(text, border)


def last_border(
    text: Sequence[str], least: int, limit: int, is_border: Callable[[Sequence[str], int], bool]
) -> int | None:
    """Last index in (`least`, `limit`] that is a border; None if there is none."""
    return next((at for at in range(limit, least, -1) if is_border(text, at)), None)


def _character_border(text: Sequence[str], start: int, limit: int) -> int:
    at = limit
    while at > start + 1 and _is_joined(text[at - 1], text[at]):
        at -= 1
    return at if at > start + 1 else limit


def _is_joined(left: str, right: str) -> bool:
    """Whether both are parts of one combined character: marks, emoji sequences, surrogates."""
    is_pair = "\ud800" <= left <= "\udbff" and "\udc00" <= right <= "\udfff"
    return is_pair or left == "\u200d" or unicodedata.category(right) in _EXTENDING


_EXTENDING = frozenset(("Mn", "Mc", "Me", "Cf", "Sk", "Lm"))


def complete_words_end(text: str) -> int | None:
    """End of the last word that later text cannot change; None if there is none.

    A word is complete before white space or another word, and with a sentence mark ("No."). Han is
    complete at the end of the text too.
    """
    words = split_words(text)
    if words and words[-1].char_end == len(text) and not _is_han_or_closed(text[-1]):
        words.pop()
    return words[-1].char_end if words else None


def has_complete_word(text: str) -> bool:
    """Whether `text` begins with a word that later text cannot change."""
    return complete_words_end(text[:_FIRST_WORDS_CHARS]) is not None


def _is_han_or_closed(character: str) -> bool:
    is_wide_mark = character in WIDE_CLAUSE_ENDS or unicodedata.category(character) == "Pe"
    is_mark = is_wide_mark or character in SENTENCE_ENDS
    return is_mark or unicodedata.name(character, "").startswith("CJK UNIFIED")


class Lines:
    """Tracks the lines of a text to find where markdown blocks begin and end."""

    def __init__(self) -> None:
        self._head = ""
        """First characters of the current line, without leading white space."""
        self._length = 0
        """Length of the whole text so far, whatever has become of it."""
        self._is_block = False

    def border(self, character: str) -> int | None:
        """Process the next character.

        Returns:
            Offset of a block border in the whole text; None for no border. The caller may already
            have split after it: inside the block's mark, or in white space before the block.
        """
        self._length += 1
        if character == "\n":
            is_border = self._is_block or not self._head
            self._head, self._is_block = "", False
            return self._length - 1 if is_border else None
        if not self._head and character.isspace():
            return None
        return self._length - len(self._head) if self._starts_block(character) else None

    def _starts_block(self, character: str) -> bool:
        if self._is_block or len(self._head) >= _BLOCK_START_CHARS:
            return False
        self._head += character
        self._is_block = _BLOCK_START.match(self._head) is not None
        return self._is_block
