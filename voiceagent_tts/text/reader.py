"""The reader: decides how each span of a client's text is said, while the text is being written.

Text passes through unchanged, except that a span with a reading is masked by letters, so that later
rooms take it for one word, and the tags of breaks are masked by spaces. Masked text has the length
of the client's, so every offset remains one of the client's text. The result does not depend on how
the text was split into deltas.

Text is held back only while it is the beginning of an entry or of a tag; `release`, which the
reader's owner calls when its timer fires, gives up an entry.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from voiceagent_tts.core import Pause, Reading, Segment, ms_to_samples
from voiceagent_tts.text.entries import EntryMatcher, Match, Undecided, match_first
from voiceagent_tts.text.markup import Tag, match_tag
from voiceagent_tts.text.masked import parts_by_said
from voiceagent_tts.text.segmenter import MAX_SEGMENT_CHARS, Segmenter
from voiceagent_tts.text.words import is_spoken

MAX_PAUSES_MS = 60_000
"""Maximum total length of the breaks of one context."""
_MASK = "x"


@dataclass(frozen=True, slots=True)
class Passage:
    """The next part of the text.

    Args:
        text: masked text, as long as the client's.
        readings: how spans of it are said, in order; each lies inside the passage.
    """

    text: str
    readings: tuple[Reading, ...] = ()


class Reader:
    """Reads the text of one context.

    Args:
        lexicons: the lexicons of the context; of equally long matches the first one's counts.
    """

    def __init__(self, lexicons: Sequence[EntryMatcher] = (), *, has_markup: bool = False) -> None:
        self._lexicons = lexicons
        self._has_markup = has_markup
        self._held = ""
        self._holds_tag = False
        self._char_start = 0  # offset of the first held character
        self._before = ""  # character before it
        self._pauses_left = ms_to_samples(MAX_PAUSES_MS)

    @property
    def masks_text(self) -> bool:
        """Whether its passages may differ from the client's text."""
        return bool(self._lexicons) or self._has_markup

    @property
    def is_holding(self) -> bool:
        """Whether `release` would return text."""
        return bool(self._held) and not self._holds_tag

    def push(self, delta: str) -> list[Passage | Pause]:
        """Append text; return what is decided."""
        if not self.masks_text:
            return [Passage(delta)]
        self._held += delta
        return self._read(gives_up_entries=False, gives_up_tags=False)

    def release(self) -> list[Passage | Pause]:
        """Return held text, except the beginning of a tag: the client has stopped writing."""
        return self._read(gives_up_entries=True, gives_up_tags=False)

    def flush(self) -> list[Passage | Pause]:
        """Return all held text."""
        return self._read(gives_up_entries=True, gives_up_tags=True)

    def _read(self, *, gives_up_entries: bool, gives_up_tags: bool) -> list[Passage | Pause]:
        parts: list[Passage | Pause] = []
        masked: list[str] = []
        readings: list[Reading] = []
        text, at = self._held, 0
        self._holds_tag = False
        while at < len(text):
            found = self._found(text, at, is_end=gives_up_entries)
            if isinstance(found, Undecided):
                is_tag = text[at] == "<" and self._has_markup
                if not (gives_up_tags and is_tag):
                    self._holds_tag = is_tag
                    break
                found = None
            if found is None:
                masked.append(text[at])
                at += 1
                continue
            reading = self._reading(text, at, found)
            masked.append((" " if reading is None else _MASK) * (found.char_end - at))
            at = found.char_end
            if reading is not None:
                readings.append(reading)
            elif isinstance(found, Tag) and (samples := self._pause(found)):
                parts.append(Passage("".join(masked), tuple(readings)))
                parts.append(Pause(self._char_start + at, samples))
                masked, readings = [], []
        if masked:
            parts.append(Passage("".join(masked), tuple(readings)))
        self._before = text[at - 1 : at] or self._before
        self._held, self._char_start = text[at:], self._char_start + at
        return parts

    def _found(self, text: str, at: int, *, is_end: bool) -> Match | Tag | Undecided | None:
        if text[at] == "<" and self._has_markup:
            return match_tag(text, at)
        before = text[at - 1] if at else self._before
        return match_first(self._lexicons, text, at, before, is_end=is_end)

    def _reading(self, text: str, at: int, found: Match | Tag) -> Reading | None:
        """The reading of an entry or element; None for a tag that is not spoken."""
        start, end = self._char_start + at, self._char_start + found.char_end
        if isinstance(found, Tag):
            return Reading(start, end, found.said, found.ipa) if is_spoken(found.said) else None
        said = found.pronunciation
        return Reading(start, end, said.say or text[at : found.char_end], said.ipa)

    def _pause(self, tag: Tag) -> int:
        samples = min(tag.pause_samples, self._pauses_left)
        self._pauses_left -= samples
        return samples


class MaskingSegmenter:
    """Splits a text with readings and breaks into segments: reads it, then segments what is masked.

    Its methods are those of `Segmenter`; its segments have their readings, and breaks stand between
    them.
    """

    def __init__(self, reader: Reader, language: str | None, *, is_token_fed: bool) -> None:
        self._reader = reader
        self._readings: deque[Reading] = deque()  # of text that is not in a segment yet, in order
        self._segmenter = Segmenter(
            language=language, readings=self._readings, is_token_fed=is_token_fed
        )

    @property
    def is_holding(self) -> bool:
        """Whether `give_up` would release text that may begin an entry."""
        return self._reader.is_holding

    @property
    def pending(self) -> int:
        """Number of pending characters; as for `Segmenter`."""
        return self._segmenter.pending

    @property
    def ends_sentence(self) -> bool:
        """Whether `settle` would return a segment."""
        return self._segmenter.ends_sentence

    def push(self, delta: str) -> list[Segment | Pause]:
        """Append text; return the segments and breaks that it completes."""
        return self._divide(self._reader.push(delta))

    def give_up(self) -> list[Segment | Pause]:
        """Read text that may begin an entry as it is: the client has stopped writing."""
        return self._divide(self._reader.release())

    def settle(self) -> list[Segment | Pause]:
        """Split at the sentence end that ends the pending text."""
        return [*self._with_readings(self._segmenter.settle())]

    def release(self) -> list[Segment | Pause]:
        """Split at the last border in the pending text."""
        return [*self._with_readings(self._segmenter.release())]

    def flush(self) -> list[Segment | Pause]:
        """Make all that is held and pending a segment."""
        rest = self._divide(self._reader.flush())
        return [*rest, *self._with_readings(self._segmenter.flush())]

    def _divide(self, read: Iterable[Passage | Pause]) -> list[Segment | Pause]:
        parts: list[Segment | Pause] = []
        for part in read:
            if isinstance(part, Pause):
                parts += [*self._with_readings(self._segmenter.flush()), part]
            else:
                self._readings += part.readings
                parts += self._with_readings(self._segmenter.push(part.text))
        return parts

    def _with_readings(self, segments: Iterable[Segment]) -> Iterator[Segment]:
        for segment in segments:
            readings: list[Reading] = []
            while self._readings and self._readings[0].char_start < segment.char_end:
                readings.append(self._readings.popleft())
            yield from parts_by_said(replace(segment, readings=tuple(readings)), MAX_SEGMENT_CHARS)
