"""Vocabulary of all rooms: samples, words, segments, and the listener's playout clock.

Positions are samples at 24 kHz, counted from the first sample of their context (its clock).
Character offsets count Unicode code points in the concatenation of a context's text messages.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

SAMPLE_RATE_HZ = 24_000
BYTES_PER_SAMPLE = 2  # PCM16, mono, little-endian
FRAME_SAMPLES = 1_920  # one codec frame: 80 ms
FRAME_S = FRAME_SAMPLES / SAMPLE_RATE_HZ
MAX_MESSAGE_PCM_BYTES = 4_096
TRACEPARENT = "traceparent"
"""Name of the header, and of the field in `metadata`, that carries a span."""

Encoding = Literal["pcm_s16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"]
"""Number format of the samples that a client receives."""

ENCODED_SAMPLE_BYTES: dict[Encoding, int] = {
    "pcm_s16le": 2,
    "pcm_f32le": 4,
    "pcm_mulaw": 1,
    "pcm_alaw": 1,
}


DoneReason = Literal["complete", "cancelled", "error", "limit", "idle"]
"""Why a context has ended."""
CutBasis = Literal["played_ms", "clock"]
"""Source of the played time of a cut: the client, or the server's playout clock."""


class WarningCode(StrEnum):
    """Stable names of the ways in which the output of a context is degraded."""

    KANJI_SPELLED_OUT = "kanji_spelled_out"
    INSTRUCT_IGNORED = "instruct_ignored"
    IPA_IGNORED = "ipa_ignored"
    ACCENT_UNAVAILABLE = "accent_unavailable"
    LANGUAGE_UNAVAILABLE = "language_unavailable"
    """An error of the same name ends a context whose client asked for `strict_language`."""


def samples_to_ms(samples: int) -> int:
    """Whole milliseconds of `samples` at 24 kHz, rounded down."""
    return samples * 1000 // SAMPLE_RATE_HZ


def ms_to_samples(ms: float) -> int:
    """Samples at 24 kHz of `ms` milliseconds, rounded down."""
    return int(ms * SAMPLE_RATE_HZ / 1000)


def earliest(*times: float | None) -> float | None:
    """Return the first of several times; None if there is none."""
    return min((time for time in times if time is not None), default=None)


@dataclass(frozen=True, slots=True)
class Word:
    """A verbatim span of the client's text: `text == context_text[char_start:char_end]`."""

    text: str
    char_start: int
    char_end: int


EXACT_CONFIDENCE = 0.95  # confidence from which a word's time counts as exact, here and on the wire


@dataclass(frozen=True, slots=True)
class WordTimestamp:
    """Time of a word on its context's clock."""

    word: Word
    start_sample: int
    end_sample: int | None  # None while that is unknown
    confidence: float
    """Probability that the word begins within 200 ms of `start_sample`; 1.0 for times of the engine
    itself."""

    @property
    def is_exact(self) -> bool:
        """Whether the time can be relied on; False for an estimate."""
        return self.confidence >= EXACT_CONFIDENCE

    def later(self, samples: int) -> "WordTimestamp":
        """The timestamp moved by `samples`, for a clock that began that much earlier."""
        end_sample = None if self.end_sample is None else self.end_sample + samples
        return replace(self, start_sample=self.start_sample + samples, end_sample=end_sample)


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """Audio of a context from `start_sample` on: PCM16, mono, 24 kHz."""

    start_sample: int
    pcm: bytes

    @property
    def samples(self) -> int:
        """Length in samples."""
        return len(self.pcm) // BYTES_PER_SAMPLE

    @property
    def end_sample(self) -> int:
        """Position of the first sample after this chunk."""
        return self.start_sample + self.samples


@dataclass(frozen=True, slots=True)
class Reading:
    """How a span of the client's text is said where that differs from what is written.

    The span counts as one word. In the text of a segment it is masked by as many letters, so that
    nothing splits it.
    """

    char_start: int  # of the span in the context's text
    char_end: int  # of the first character after it
    said: str  # in letters
    ipa: str | None = None
    """What is said, in the International Phonetic Alphabet, for engines that read it; None where
    only the letters are known."""

    @property
    def said_chars(self) -> int:
        """How much is said, in characters: the letters, or the IPA where that is longer."""
        return max(len(self.said), len(self.ipa or ""))


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence between the text before it and the text after it."""

    char_end: int  # offset of the first character after its tag
    samples: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of a context's text that an engine speaks in one run; joined, they are the text."""

    text: str  # a span with a reading is masked
    char_start: int  # of its first character in the context's text
    readings: tuple[Reading, ...] = ()  # how spans of it are said, in order

    @property
    def char_end(self) -> int:
        """Offset of the first character after this segment."""
        return self.char_start + len(self.text)

    def part(self, char_start: int, char_end: int) -> "Segment":
        """The part between two offsets of the context's text, with readings that begin in it."""
        if (char_start, char_end) == (self.char_start, self.char_end):
            return self
        text = self.text[char_start - self.char_start : char_end - self.char_start]
        readings = (each for each in self.readings if char_start <= each.char_start < char_end)
        return Segment(text, char_start, tuple(readings))


@dataclass(frozen=True, slots=True)
class Cut:
    """A text, divided at the point that playback had reached; both parts joined are the text."""

    text_spoken: str  # the part that was heard
    text_remaining: str
    is_partial: bool  # whether playback ended within the last word of `text_spoken`


class PlayoutClock:
    """Models the listener's playback of one context, from when its audio was sent.

    After an underrun playback continues with the next audio. So a stall does not make a row urgent
    for ever, and words do not get ahead of their audio. Time is passed in, as `time.monotonic()`
    seconds; positions are samples at 24 kHz.

    Args:
        speed: rate at which the listener plays the samples; 1.0 is their own.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self.sent_samples = 0  # so far
        self.playout_end = 0.0  # time at which playback of these ends
        self.underrun_s = 0.0  # total length of the underruns between sent audio
        self._speed = speed

    def send(self, samples: int, now: float) -> float:
        """Count audio that is sent to the listener; return the seconds of silence before it."""
        gap_s = max(0.0, now - self.playout_end) if self.sent_samples else 0.0
        self.underrun_s += gap_s
        self.playout_end = max(self.playout_end, now) + samples / SAMPLE_RATE_HZ / self._speed
        self.sent_samples += samples
        return gap_s

    def lead_s(self, now: float) -> float:
        """Seconds of sent audio that are not played yet."""
        return max(0.0, self.playout_end - now)

    def played_samples(self, now: float) -> int:
        """Samples of the sent audio that have been played at `now`; underruns do not count."""
        unplayed = round(self.lead_s(now) * self._speed * SAMPLE_RATE_HZ)
        return max(0, self.sent_samples - unplayed)
