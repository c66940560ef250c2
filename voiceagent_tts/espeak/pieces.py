"""Segments to pieces: the text of one espeak call.

espeak cannot pause inside a call, so pieces are short: the first audio comes sooner, and other
contexts need not wait. espeak speaks clause by clause, so a segment that is cut after a comma
sounds like the whole segment. This module knows no espeak library, no voice and no audio.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from voiceagent_tts.core import Segment, Word
from voiceagent_tts.espeak.word_times import SpokenText
from voiceagent_tts.text.punctuation import (
    CLAUSE_ENDS,
    DASHES,
    SENTENCE_ENDS,
    ends_clause,
    last_mark,
)
from voiceagent_tts.text.readings import said
from voiceagent_tts.text.words import is_spoken, split_words

MAX_PIECE_CHARS = 250
"""About 15 s of audio, which take about 15 ms to generate."""

MIN_PIECE_CHARS = 12
"""A shorter clause joins the next one, as each call has a cost of its own."""

_CERTAIN_CLAUSE_ENDS = (SENTENCE_ENDS | CLAUSE_ENDS) - DASHES - frozenset(".:：…")
"""Marks that always end a clause: a full stop or a colon may belong to an abbreviation or time."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a segment, with its spoken text.

    Attributes:
        words: the client's words in it.
        spoken: the cleaned text.
        ends_clause: whether a speaker pauses after it.
        segment_end: offset of the first character after the segment if this is its last piece, else
            None.
    """

    words: tuple[Word, ...]
    spoken: SpokenText
    ends_clause: bool
    segment_end: int | None

    @property
    def is_silent(self) -> bool:
        """Whether it has nothing to speak."""
        return not is_spoken(self.spoken.text)


def split_pieces(segment: Segment) -> list[Piece]:
    """Cut a segment after clauses, and between words where a clause is too long.

    A word longer than a piece is cut too; it belongs to the piece in which it begins.
    """
    words = split_words(segment.text, segment.char_start)
    firsts = [0, *_cuts(words)]
    starts = [segment.char_start, *(words[first].char_start for first in firsts[1:])]
    pieces: list[Piece] = []
    for (first, last), (start, end) in zip(
        pairwise([*firsts, len(words)]), pairwise([*starts, segment.char_end]), strict=True
    ):
        pieces.append(_piece(segment, start, min(end, start + MAX_PIECE_CHARS), words[first:last]))
        for rest in range(start + MAX_PIECE_CHARS, end, MAX_PIECE_CHARS):
            pieces.append(_piece(segment, rest, min(end, rest + MAX_PIECE_CHARS), []))
    return pieces


def _cuts(words: Sequence[Word]) -> Iterator[int]:
    """Index of each word that begins a piece after the first."""
    first = clause = 0
    for index, word in enumerate(words):
        if word.char_end - words[first].char_start > MAX_PIECE_CHARS and index > first:
            first = clause if clause > first else index
            yield first
        if ends_clause(word.text):
            clause = index + 1
        if last_mark(word.text) in _CERTAIN_CLAUSE_ENDS and clause < len(words):
            if word.char_end - words[first].char_start >= MIN_PIECE_CHARS:
                first = clause
                yield first


def _piece(segment: Segment, start: int, end: int, words: list[Word]) -> Piece:
    text = segment.text[start - segment.char_start : end - segment.char_start]
    readings = [r for r in segment.readings if r.char_start < end and r.char_end > start]
    spoken = said(text, start, readings)
    return Piece(
        words=tuple(words),
        spoken=SpokenText(spoken.text, spoken.offsets, ipa=spoken.ipa),
        ends_clause=ends_clause(spoken.text),
        segment_end=end if end == segment.char_end else None,
    )
