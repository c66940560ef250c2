"""Masked text: spans of it are not said as they are written, and have readings in their place.

The server divides and counts masked text; what an engine says for it is found in `readings`.
"""

from collections.abc import Iterable, Iterator, Sequence

from voiceagent_tts.core import Reading, Segment


def pieces_of(
    text: str, char_start: int, readings: Iterable[Reading]
) -> Iterator[tuple[str, int, Reading | None]]:
    """Yield the letters of a masked text in parts, each with its offset and perhaps its reading.

    The text's first character has the offset `char_start` in the context's text. Readings of spans
    in it are in order; each is said where its span begins.
    """
    at = char_start
    for reading in readings:
        if reading.char_start >= at:  # else it was said with the text before
            yield text[at - char_start : reading.char_start - char_start], at, None
            yield reading.said, reading.char_start, reading
        at = reading.char_end
    yield text[max(0, at - char_start) :], at, None


def said_word(word: str, char_start: int, readings: Sequence[Reading]) -> str:
    """Return a masked word with its readings in letters, not cleaned; see `pieces_of`."""
    return "".join(letters for letters, _, _ in pieces_of(word, char_start, readings))


def parts_by_said(segment: Segment, most_chars: int) -> Iterator[Segment]:
    """Cut a segment before readings, so that each part says at most `most_chars` characters.

    A part without a cut in it, which has one reading, may say more: by what the segment has outside
    of readings.
    """
    start, said_so_far, at, has_reading = segment.char_start, 0, segment.char_start, False
    for reading in segment.readings:
        said_so_far += reading.char_start - at + reading.said_chars
        if has_reading and said_so_far > most_chars:
            yield segment.part(start, reading.char_start)
            start, said_so_far = reading.char_start, reading.said_chars
        at, has_reading = reading.char_end, True
    yield segment.part(start, segment.char_end)
