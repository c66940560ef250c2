"""Divides segments into pieces: the text of one espeak call.

espeak cannot pause inside a call, so pieces are short: the first audio comes sooner, and other
contexts need not wait. espeak speaks clause by clause, so a segment that is cut after a comma
sounds like the whole segment. Numbers and signs are in words where espeak reads them otherwise than
people do.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

from voiceagent_tts.core import Segment, Word
from voiceagent_tts.text.normalizer import normalize
from voiceagent_tts.text.pieces import TextPiece
from voiceagent_tts.text.punctuation import (
    CLAUSE_ENDS,
    DASHES,
    SENTENCE_ENDS,
    ends_clause,
    last_mark,
)
from voiceagent_tts.text.readings import Said, said
from voiceagent_tts.text.words import split_words

MAX_PIECE_CHARS = 250
"""About 15 s of audio, which take about 15 ms to generate."""

MIN_PIECE_CHARS = 12
"""A shorter clause joins the next one, as each call has a cost of its own."""

_CERTAIN_CLAUSE_ENDS = (SENTENCE_ENDS | CLAUSE_ENDS) - DASHES - frozenset(".:：…")
"""Marks that always end a clause: a full stop or a colon may belong to an abbreviation or time."""


def split_pieces(segment: Segment, language: str) -> list[TextPiece]:
    """Cut a segment after clauses, and between words where a clause is too long.

    A word longer than a piece is cut too; it belongs to the piece in which it begins. Lengths are
    those of what is said, in the voice's `language`: a number or a reading may be many times as
    long as what is written.
    """
    whole = normalize(
        said(segment.text, segment.char_start, segment.readings), language, reads_digits=True
    )
    words = split_words(segment.text, segment.char_start)
    firsts = [0, *_cuts(words, whole)]
    starts = [segment.char_start, *(words[first].char_start for first in firsts[1:])]
    pieces: list[TextPiece] = []
    for (first, last), (start, end) in zip(
        pairwise([*firsts, len(words)]), pairwise([*starts, segment.char_end]), strict=True
    ):
        ranges = list(_ranges(whole, _place(whole, start), _place(whole, end)))
        for part in ranges:
            its_words = tuple(words[first:last]) if part is ranges[0] else ()
            is_last = end == segment.char_end and part is ranges[-1]
            pieces.append(TextPiece(its_words, _part(whole, part), end if is_last else None))
    return pieces


def _place(whole: Said, char: int) -> int:
    """Where in what is said the client's character at an offset is."""
    return bisect_left(whole.offsets, char)


def _cuts(words: Sequence[Word], whole: Said) -> Iterator[int]:
    first = clause = 0
    for index, word in enumerate(words):
        said_chars = _place(whole, word.char_end) - _place(whole, words[first].char_start)
        if said_chars > MAX_PIECE_CHARS and index > first:
            first = clause if clause > first else index
            yield first
        if ends_clause(word.text):
            clause = index + 1
        if last_mark(word.text) in _CERTAIN_CLAUSE_ENDS and clause < len(words):
            if word.char_end - words[first].char_start >= MIN_PIECE_CHARS:
                first = clause
                yield first


def _ranges(whole: Said, first: int, end: int) -> Iterator[range]:
    """Cut what is said into pieces: after white space if there is any, and not inside of an IPA."""
    while end - first > MAX_PIECE_CHARS:
        last = first + MAX_PIECE_CHARS
        last = whole.text.rfind(" ", first + 1, last) + 1 or last
        for span, _ in whole.ipa:
            if span.start < last < span.stop:
                last = span.start if span.start > first else span.stop
        yield range(first, last)
        first = last
    yield range(first, max(first, end))


def _part(whole: Said, place: range) -> Said:
    first, last = place.start, place.stop
    text = whole.text[first:last].rstrip()
    ipa = tuple(
        (range(span.start - first, span.stop - first), sounds)
        for span, sounds in whole.ipa
        if first <= span.start and span.stop <= last
    )
    return Said(text, whole.offsets[first : first + len(text)], ipa)
