"""The spoken form of a masked text: readings in place of their masks, cleaned for speech."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from voiceagent_tts.core import Reading, Word
from voiceagent_tts.text.cleaning import Speakable, speakable
from voiceagent_tts.text.masked import pieces_of


@dataclass(frozen=True, slots=True)
class Said:
    """The characters to speak.

    Args:
        offsets: offset in the context's text of each of them; non-decreasing. All characters of a
            reading have the offset of its span.
        ipa: pronunciations in IPA, by the range of the characters that they replace.
    """

    text: str
    offsets: tuple[int, ...]
    ipa: tuple[tuple[range, str], ...] = ()

    def range_of(self, word: Word) -> range:
        """Indices in `text` of the characters that speak `word`."""
        start = bisect_left(self.offsets, word.char_start)
        return range(start, bisect_left(self.offsets, word.char_end, start))


def said(text: str, char_start: int, readings: Sequence[Reading]) -> Said:
    """Return the spoken form of a masked text; arguments as for `pieces_of`."""
    letters: list[str] = []
    origins: list[int] = []
    spans: list[tuple[range, str]] = []
    for piece, start, reading in pieces_of(text, char_start, readings):
        letters.append(piece)
        if reading is None:
            origins += range(start, start + len(piece))
            continue
        if reading.ipa is not None:
            spans.append((range(len(origins), len(origins) + len(piece)), reading.ipa))
        origins += [start] * len(piece)
    cleaned = speakable("".join(letters))
    ipa = tuple(_ipa_ranges(cleaned, spans))
    return Said(cleaned.spoken, tuple(origins[offset] for offset in cleaned.offsets), ipa)


class GrowingLetters:
    """Puts readings in place of their masks in a text that is still being written.

    Attributes:
        char_end: end of the masked text so far, as an offset in the context's text.
        written: number of letters that were returned.
    """

    def __init__(self) -> None:
        self.char_end = 0
        self.written = 0
        self._readings: deque[Reading] = deque()  # of text that is not written
        self._replaced: deque[tuple[range, Reading]] = deque()
        """Places in the letters at which a reading stands, in order."""
        self._shift = 0  # from the letters before the first of these to the context's text
        self._masked_end = 0

    def push(self, delta: str, readings: Iterable[Reading]) -> str:
        """Append masked text, and the readings of spans in it or after it; return its letters."""
        self._readings += readings
        start = max(self.char_end, min(self._masked_end, self.char_end + len(delta)))
        text = delta[start - self.char_end :]
        self.char_end += len(delta)
        due: list[Reading] = []
        while self._readings and self._readings[0].char_start < self.char_end:
            due.append(self._readings.popleft())
        letters = ""
        for piece, _, reading in pieces_of(text, start, due):
            if reading is not None:
                place = range(self.written + len(letters), self.written + len(letters + piece))
                self._replaced.append((place, reading))
                self._masked_end = reading.char_end
            letters += piece
        self.written += len(letters)
        return letters

    def origin(self, place: int) -> int:
        """Offset in the context's text of a place in the letters; places never decrease."""
        while self._replaced and self._replaced[0][0].stop <= place:
            span, reading = self._replaced.popleft()
            self._shift = reading.char_end - span.stop
        if self._replaced and self._replaced[0][0].start < place:
            return self._replaced[0][1].char_start
        return place + self._shift

    def skip_to(self, char_start: int) -> None:
        """Continue at an offset; the letters so far have been read to their end."""
        self._replaced.clear()
        self._shift = char_start - self.written
        self.char_end = self._masked_end = char_start


def _ipa_ranges(cleaned: Speakable, spans: Sequence[tuple[range, str]]) -> list[tuple[range, str]]:
    """Where the spans with an IPA are in the cleaned text; those removed are left out."""
    found: list[tuple[range, str]] = []
    for span, ipa in spans:
        first, end = (bisect_left(cleaned.offsets, place) for place in (span.start, span.stop))
        if first < end:
            found.append((range(first, end), ipa))
    return found
