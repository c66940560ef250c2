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

The segmenter has no clock: its owner calls `settle` and `release` when its timers fire.
"""

import unicodedata
from functools import lru_cache

from voiceagent_tts.core import Segment
from voiceagent_tts.text.borders import (
    Lines,
    best_border,
    complete_words_end,
    is_clause_end,
    last_border,
    marks_before,
    may_follow_wide_mark,
    visible_end,
)
from voiceagent_tts.text.punctuation import WIDE_SENTENCE_ENDS
from voiceagent_tts.text.sentences import LOOKBACK_CHARS, Ending, ending_of, ends_sentence_before
from voiceagent_tts.text.words import is_syllabic, split_words

_MAX_SILENT_CHARS = 1_000
"""Longest beginning of a segment without speech; a longer one is a segment that says nothing."""
_FIRST_CLAUSE_WIDTH = 12
_FIRST_CLAUSE_WORDS = 2
_FIRST_SEGMENT_WIDTH = 80
"""About five seconds of speech: enough to play while the next segment is generated."""
_WIDE_CHARACTER_WIDTH = 3
"""A Han, Kana or Hangul character takes about as long to say as three Latin letters."""


class Segmenter:
    """Splits the text of one context into segments while it is being written.

    Args:
        max_chars: maximum length of a segment. Leading characters without speech (such as a long
            rule of dashes) are not counted if they exceed half of `max_chars`, because less than
            1,000 of them cannot be a segment by themselves.
        first_clause: whether the first segment may end with a clause.
        language: code of the text's language, if known; selects the abbreviations.
    """

    def __init__(
        self, max_chars: int = 250, first_clause: bool = True, language: str | None = None
    ) -> None:
        self._max_chars = max_chars
        self._language = language
        self._is_first = first_clause
        self._is_finished = False
        self._has_kept_number = False
        """Whether `release` has kept a number since the last text."""
        self._lines = Lines()
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
        assert not self._is_finished, "push after finish"
        self._has_kept_number = False
        segments: list[Segment] = []
        for character in delta:
            border = self._lines.border(character)
            if border is not None and border > self._char_start and self._speech_start is not None:
                self._split(visible_end(self._text, border - self._char_start), segments)
            self._accept(character, segments)
        return segments

    def settle(self) -> list[Segment]:
        """Split at the sentence end that ends the pending text: the client has stopped writing."""
        return self._split_at(self._settled_end())

    def release(self) -> list[Segment]:
        """Split at a sentence end at the end of the pending text, as `settle` does.

        Without one, split at the last clause end, else after the last complete word. Returns an
        empty list if the pending text has none of these. A number that may go on is kept once.
        """
        end = self._released_end()
        if end == len(self._text) and self._ends_in_number() and not self._has_kept_number:
            self._has_kept_number = True
            end = complete_words_end("".join(self._text[:-1]))
        return self._split_at(end)

    def flush(self) -> list[Segment]:
        """Make all that is buffered a segment, even if it has no letter or digit."""
        return [self._pop(len(self._text))] if self._text else []

    def finish(self) -> list[Segment]:
        """Make the rest of the text a segment; no text can be pushed afterwards."""
        self._is_finished = True
        return self.flush()

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
        if not self._speaks_before(end):
            return
        rest = self._text[end:]
        segments.append(self._pop(end))
        self._text.clear()
        for character in rest:
            self._accept(character, segments)

    def _pop(self, end: int) -> Segment:
        segment = Segment("".join(self._text[:end]), self._char_start)
        del self._text[:end]
        self._char_start = segment.char_end
        self._is_first = self._is_first and self._speech_start is None
        self._speech_start = self._undecided = None
        return segment

    def _speaks_before(self, end: int) -> bool:
        return self._speech_start is not None and self._speech_start < end

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
        start, stop = marks_before(self._text, at)
        ending = ending_of(self._before(stop), self._joined(start, stop), self._language)
        if ending is Ending.SENTENCE:
            return at
        if ending is Ending.UNDECIDED:
            self._undecided = at
        return self._first_segment_end(at)

    def _unspaced_end(self, at: int, character: str) -> int | None:
        if not may_follow_wide_mark(character):
            return None
        start, stop = marks_before(self._text, at)
        marks = set(self._text[start:stop])
        if marks & WIDE_SENTENCE_ENDS or (marks - {".", "…"} and is_syllabic(character)):
            return at
        return self._first_segment_end(at)

    def _first_segment_end(self, at: int) -> int | None:
        if not self._is_first or self._first_width < _FIRST_CLAUSE_WIDTH:
            return None
        if is_clause_end(self._text, at) and self._has_words(at, _FIRST_CLAUSE_WORDS):
            return at
        if self._text[at].isspace() and self._first_width > _FIRST_SEGMENT_WIDTH:
            return best_border(self._text, self._speech_start or 0, at)
        return None

    def _overflow_end(self, at: int) -> int | None:
        start = self._speech_start or 0
        uncounted = start if start > self._max_chars // 2 else 0
        if at < self._max_chars + uncounted:
            return None
        return best_border(self._text, start, at)

    def _settled_end(self) -> int | None:
        if self._speech_start is None or self._ends_in_number():
            return None
        end = visible_end(self._text, len(self._text))
        start, stop = marks_before(self._text, end)
        before = self._before(stop)
        ending = ending_of(before, self._joined(start, stop), self._language)
        if ending is Ending.UNDECIDED and ends_sentence_before(before, "", self._language):
            return end
        return end if ending is Ending.SENTENCE else None

    def _released_end(self) -> int | None:
        if self._speech_start is None:
            return None
        settled = self._settled_end()
        if settled is not None:
            return settled
        clause = last_border(self._text, self._speech_start, len(self._text) - 1, is_clause_end)
        return complete_words_end("".join(self._text)) if clause is None else clause

    def _ends_in_number(self) -> bool:
        """Whether more digits may follow: "$3." may become "$3.50"."""
        end = self._text[-2:]
        return len(end) == 2 and end[0].isdigit() and end[1] in ".,:"

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
