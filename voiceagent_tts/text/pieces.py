"""Divides segments into pieces: what an engine reads and speaks at once, a sentence or a clause.

Segments of the server are pieces as they come. A longer text, which other senders may submit, is
cut by the server's own rules, so that reading it delays no other row.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from voiceagent_tts.core import Segment, Word
from voiceagent_tts.text.punctuation import ends_clause
from voiceagent_tts.text.readings import Said, said
from voiceagent_tts.text.segmenter import Segmenter
from voiceagent_tts.text.words import is_spoken, split_words


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A part of a segment.

    Attributes:
        words: the client's words that begin in it.
        segment_end: offset of the first character after the segment if this is its last piece, else
            None.
    """

    words: tuple[Word, ...]
    said: Said
    segment_end: int | None

    @property
    def is_silent(self) -> bool:
        """Whether it has nothing to speak."""
        return not is_spoken(self.said.text)

    @property
    def ends_clause(self) -> bool:
        """Whether a speaker pauses after it."""
        return ends_clause(self.said.text)


def split_pieces(segment: Segment) -> Iterator[TextPiece]:
    """Cut a segment where the server would; its words are those of the whole segment."""
    segmenter = Segmenter(first_clause=False)
    parts = [*segmenter.push(segment.text), *segmenter.flush()] or [Segment(segment.text, 0)]
    words = split_words(segment.text, segment.char_start)
    starts = [word.char_start for word in words]
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        start = segment.char_start + part.char_start
        end = segment.char_end if is_last else segment.char_start + part.char_end
        first = 0 if index == 0 else bisect_left(starts, start)
        last = len(words) if is_last else bisect_left(starts, end)
        readings = [r for r in segment.readings if r.char_start < end and r.char_end > start]
        yield TextPiece(
            tuple(words[first:last]),
            said(part.text, start, readings),
            segment.char_end if is_last else None,
        )
