"""The segmenter: splits the text of an LLM into the segments that an engine speaks.

Characters are judged in order, by the text before them; after a split, the rest is judged again as
the start of a new segment. So without timers the segments do not depend on how the text was split
into deltas. A segment ends right after its last visible character; the white space after it belongs
to the next one. Segments joined are the text.

A segment ends at

- a sentence end: a mark with its closing quotes, followed by white space (in CJK by anything).
  An abbreviation, ordinal or ellipsis waits for the next word;
- a paragraph break, and the borders of list items, headings, quotes and table rows;
- `max_chars`, at the best place before it: a clause end, else white space, else a word border;
- in the first segment of a context, a clause end after a few words, or white space once it is
  long, so that audio starts early.

A border is an index: the split lies before the character there. The functions at the end judge
borders from the characters around them. The segmenter has no clock: its owner calls `settle` and
`release` when its timers fire.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from voiceagent_tts.core import Reading, Segment
from voiceagent_tts.text.punctuation import (
    CLAUSE_ENDS,
    SENTENCE_ENDS,
    WIDE_CLAUSE_ENDS,
    WIDE_SENTENCE_ENDS,
    last_character,
)
from voiceagent_tts.text.sentences import LOOKBACK_CHARS, Ending, ending_of, ends_sentence_before
from voiceagent_tts.text.words import is_syllabic, split_words

MAX_SEGMENT_CHARS = 250  # longest segment, as written and as said: an engine may speak it at once
_MAX_SILENT_CHARS = 1_000
"""Longest beginning of a segment without speech; a longer one is a segment that says nothing."""
_FIRST_CLAUSE_WIDTH = 12
_FIRST_CLAUSE_WORDS = 2
_FIRST_SEGMENT_WIDTH = 80
"""About five seconds of speech: enough to play while the next segment is generated."""
_WIDE_CHARACTER_WIDTH = 3
"""A Han, Kana or Hangul character takes about as long to say as three Latin letters."""

_CLOSING_CHARS = 16  # longest run of closing quotes, brackets, emphasis and emoji after a mark

_BLOCK_START = re.compile(r"(?:[-*+•‣◦–]|\d{1,3}[.)]|#{1,6}|>)\s|\||`{3}")
_BLOCK_START_CHARS = 7

_NUMBERS = r"(?<!\S)(?:[^\w\s]*\d\S*\s+)*"
_UNFINISHED = re.compile(
    rf"{_NUMBERS}(?:\S*\d[.,:]|\S*@[\w-]*\.|www\.[\w-]*\.|\S*\d\s?[ap]\.)\Z", re.IGNORECASE
)
"""The beginning of "$3.50", "me@example.com" or "3 p.m." at the end of a text."""
_CONTINUED = re.compile(rf"{_NUMBERS}[^\w\s]*\d[\d.,:/()-]*(?<=[\d)])\Z")
"""A number to which the next word may belong: a unit or more of the number."""


class Segmenter:
    """Splits the text of one context into segments while it is being written.

    Args:
        max_chars: maximum length of a segment. Leading characters without speech (such as a long
            rule of dashes) are not counted if they exceed half of `max_chars`, because less than
            1,000 of them cannot be a segment by themselves.
        first_clause: whether the first segment may end with a clause.
        language: code of the text's language, if known; selects the abbreviations.
        readings: readings of the pending text, whose spans are not split. The owner adds each
            before its text, and removes it afterwards.
        is_token_fed: whether each delta is a segment, for engines that read a text as it grows.
    """

    def __init__(
        self,
        max_chars: int = MAX_SEGMENT_CHARS,
        first_clause: bool = True,
        language: str | None = None,
        readings: Iterable[Reading] = (),
        is_token_fed: bool = False,
    ) -> None:
        self._is_token_fed = is_token_fed
        self._max_chars = max_chars
        self._language = language
        self._readings = readings
        self._is_first = first_clause
        self._has_kept_number = False  # whether `release` has kept a number since the last text
        self._lines = _Lines()
        self._text: list[str] = []
        """Pending characters; a list, as a string would be copied for each new character."""
        self._char_start = 0
        self._speech_start: int | None = None
        """Index in `_text` of the first letter or digit; None if there is none."""
        self._undecided: int | None = None
        """Index in `_text` where the segment ends if the next word starts a sentence."""
        self._first_width = 0
        """Speaking time of the first segment from its first letter, in Latin letters."""

    @property
    def pending(self) -> int:
        """Number of pending characters; the owner's release timer runs while there are any."""
        return len(self._text)

    @property
    def ends_sentence(self) -> bool:
        """Whether `settle` would return a segment; the owner's settle timer runs meanwhile."""
        return self._settled_end() is not None

    def push(self, delta: str) -> list[Segment]:
        """Append text; return the segments that it completes."""
        if self._is_token_fed:
            self._text += delta
            return self.flush()
        self._has_kept_number = False
        segments: list[Segment] = []
        for character in delta:
            border = self._lines.border(character)
            if border is not None and border > self._char_start and self._speech_start is not None:
                self._split(_visible_end(self._text, border - self._char_start), segments)
            self._accept(character, segments)
        return segments

    def settle(self) -> list[Segment]:
        """Split at the sentence end that ends the pending text: the client has stopped writing."""
        return self._split_at(self._settled_end())

    def release(self) -> list[Segment]:
        """Split at a sentence end at the end of the pending text, as `settle` does.

        Without one, split at the last clause end, else after the last complete word. Returns an
        empty list if the pending text has none of these. A number or an address that may continue
        is kept once.
        """
        end = self._released_end()
        kept = None if end is None or self._has_kept_number else self._number_before(end)
        if kept is not None:
            self._has_kept_number = True
            end = _visible_end(self._text, kept)
        return self._split_at(end)

    def flush(self) -> list[Segment]:
        """Make all that is buffered a segment, even if it has no letter or digit."""
        return [self._pop(len(self._text))] if self._text else []

    def _split_at(self, end: int | None) -> list[Segment]:
        segments: list[Segment] = []
        if end is not None:
            self._split(end, segments)
        return segments

    def _accept(self, character: str, segments: list[Segment]) -> None:
        self._text.append(character)
        if self._speech_start is None:
            if character.isalnum():
                self._speech_start = len(self._text) - 1
            elif len(self._text) == _MAX_SILENT_CHARS:
                segments.append(self._pop(_MAX_SILENT_CHARS))
            return
        end = self._decided_end(character)
        if end is not None:
            self._split(end, segments)

    def _split(self, end: int, segments: list[Segment]) -> None:
        """End a segment at `end` if it has speech; judge the rest as the start of a new segment."""
        if self._speech_start is None or self._speech_start >= end:
            return
        rest = self._text[end:]
        segments.append(self._pop(end))
        self._text.clear()
        for character in rest:
            self._accept(character, segments)

    def _pop(self, end: int) -> Segment:
        segment = Segment("".join(self._text[:end]), self._char_start)
        del self._text[:end]
        self._char_start += end
        self._is_first = self._is_first and self._speech_start is None
        self._speech_start = self._undecided = None
        return segment

    # Each of the following returns the index at which the segment ends, or None.

    def _decided_end(self, character: str) -> int | None:
        """Judge the text before `character`, which has just been appended."""
        at = len(self._text) - 1
        if self._is_first:
            self._first_width += _width_of(self._text[at - 1])
        if not character.isspace():
            end = self._unspaced_end(at, character)
        elif self._text[at - 1].isspace():
            end = None
        else:
            end = self._token_end(at)
        return self._overflow_end(at) if end is None else end

    def _token_end(self, at: int) -> int | None:
        undecided, self._undecided = self._undecided, None
        if undecided is not None and self._is_confirmed(undecided, at):
            return undecided
        ending = self._ending_at(at)
        if ending is Ending.SENTENCE:
            return at
        if ending is Ending.UNDECIDED:
            self._undecided = at
        return self._first_segment_end(at)

    def _unspaced_end(self, at: int, character: str) -> int | None:
        if not _may_follow_wide_mark(character):
            return None
        start, stop = marks_before(self._text, at)
        marks = set(self._text[start:stop])
        if marks & WIDE_SENTENCE_ENDS or (marks - {".", "…"} and is_syllabic(character)):
            return at
        return self._first_segment_end(at)

    def _first_segment_end(self, at: int) -> int | None:
        if not self._is_first or self._first_width < _FIRST_CLAUSE_WIDTH:
            return None
        if _is_clause_end(self._text, at) and self._has_words(at, _FIRST_CLAUSE_WORDS):
            return at
        if self._text[at].isspace() and self._first_width > _FIRST_SEGMENT_WIDTH:
            return _best_border(self._text, self._speech_start or 0, at)
        return None

    def _overflow_end(self, at: int) -> int | None:
        start = self._speech_start or 0
        uncounted = start if start > self._max_chars // 2 else 0
        if at < self._max_chars + uncounted:
            return None
        end = self._char_start + _best_border(self._text, start, at)
        starts = (r.char_start for r in self._readings if r.char_start < end < r.char_end)
        return next(starts, end) - self._char_start

    def _settled_end(self) -> int | None:
        if self._speech_start is None or _UNFINISHED.search(self._before(len(self._text))):
            return None
        end = _visible_end(self._text, len(self._text))
        ending = self._ending_at(end)
        if ending is Ending.UNDECIDED:
            return end if self._is_confirmed(end, len(self._text)) else None
        return end if ending is Ending.SENTENCE else None

    def _released_end(self) -> int | None:
        if self._speech_start is None:
            return None
        settled = self._settled_end()
        if settled is not None:
            return settled
        clause = _last_border(self._text, self._speech_start, len(self._text) - 1, _is_clause_end)
        return complete_words_end("".join(self._text)) if clause is None else clause

    def _number_before(self, end: int) -> int | None:
        """Where a number or address before `end` begins that later text may continue."""
        rest = self._joined(end, len(self._text))
        if len(rest.split()) > 1:
            return None
        found = (_CONTINUED if rest else _UNFINISHED).search(self._joined(0, end))
        return None if found is None else found.start()

    def _ending_at(self, end: int) -> Ending:
        """Judge the end of the token before `end`, whose next word is not known yet."""
        start, stop = marks_before(self._text, end)
        if start == stop:
            return Ending.NONE
        return ending_of(self._before(stop), self._joined(start, stop), self._language)

    def _is_confirmed(self, undecided: int, at: int) -> bool:
        _, stop = marks_before(self._text, undecided)
        following = self._joined(undecided, at).strip()
        return ends_sentence_before(self._before(stop), following, self._language)

    def _has_words(self, end: int, least: int) -> bool:
        return len(split_words(self._joined(self._speech_start or 0, end))) >= least

    def _before(self, end: int) -> str:
        return self._joined(max(0, end - LOOKBACK_CHARS), end)

    def _joined(self, start: int, end: int) -> str:
        return "".join(self._text[start:end])


@lru_cache(maxsize=8192)
def _width_of(character: str) -> int:
    is_wide = unicodedata.east_asian_width(character) in "WF"
    return _WIDE_CHARACTER_WIDTH if is_wide else 1


class _Lines:
    """Tracks the lines of a text to find where markdown blocks begin and end."""

    def __init__(self) -> None:
        self._head = ""  # first characters of the current line, without leading white space
        self._length = 0  # length of the whole text so far, whatever has become of it
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


# Borders.


@lru_cache(maxsize=8192)
def _closes(character: str) -> bool:
    """Whether a character may stand between a mark and the border: quotes, emphasis, emoji."""
    if character in "\"'*_~`":
        return True
    category = unicodedata.category(character)
    return category in ("Pe", "Pf", "Pi", "So", "Sk", "Mn", "Me", "Cf")


@lru_cache(maxsize=8192)
def _opens(character: str) -> bool:
    return unicodedata.category(character) in ("Pi", "Ps")


def _visible_end(text: Sequence[str], end: int) -> int:
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
    while stop > max(0, end - _CLOSING_CHARS) and _closes(text[stop - 1]):
        stop -= 1
    return stop


def _may_follow_wide_mark(character: str) -> bool:
    """Whether a wide mark before `character` ends its sentence: the character does not close it."""
    return _opens(character) or not (_closes(character) or character in SENTENCE_ENDS)


def _is_clause_end(text: Sequence[str], at: int) -> bool:
    """Whether a clause ends at `at`: after punctuation, or at the end of a line."""
    stop = _unclosed_end(text, at)
    if not stop or text[stop - 1].isspace():
        return False
    if text[at].isspace():
        return text[at] == "\n" or _mark_at(text, stop - 1) in CLAUSE_ENDS
    return text[stop - 1] in WIDE_CLAUSE_ENDS and _may_follow_wide_mark(text[at])


def _mark_at(text: Sequence[str], at: int) -> str:
    """The mark at an index; where a semicolon ends an entity, the character that it names."""
    if text[at] != ";":
        return text[at]
    return last_character("".join(text[max(0, at - LOOKBACK_CHARS) : at + 1]))


def _is_word_end(text: Sequence[str], at: int) -> bool:
    """Whether white space ends a token at `at`."""
    return text[at].isspace() and not text[at - 1].isspace()


def _best_border(text: Sequence[str], start: int, limit: int) -> int:
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
    for is_border in (_is_clause_end, _is_word_end):
        border = _last_border(text, least, limit, is_border)
        if border is not None:
            return border
    words = split_words("".join(text[start : limit + 1]))
    at = start + words[-1].char_start if len(words) > 1 else _character_border(text, start, limit)
    return _visible_end(text, at)


def _last_border(
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


def _is_han_or_closed(character: str) -> bool:
    is_wide_mark = character in WIDE_CLAUSE_ENDS or unicodedata.category(character) == "Pe"
    is_mark = is_wide_mark or character in SENTENCE_ENDS
    return is_mark or unicodedata.name(character, "").startswith("CJK UNIFIED")
