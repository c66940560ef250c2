"""The events of a context: audio, words, answers, and the report at its end."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from voiceagent_tts.core import AudioChunk, Cut, CutBasis, DoneReason, WarningCode, WordTimestamp
from voiceagent_tts.errors import ErrorCode, VoiceAgentError


class Source(IntEnum):
    """Sources of a word's time; the higher number is the better source."""

    ESTIMATE = 0  # the usual pace of speech
    TENTATIVE = 1  # times of the online aligner that it may still change
    ONLINE = 2  # the online aligner's committed times
    FORCED = 3
    NATIVE = 4  # the engine's own words
    CACHE = 5  # stored with the audio of a cached phrase

    @property
    def label(self) -> str:
        """Name of the source in `/metrics`."""
        # The metric has an older name of tentative times, which dashboards rely on.
        return "outlook" if self is Source.TENTATIVE else self.name.lower()


@dataclass(slots=True)
class WordCounts:
    """Sources and corrections of the words of a context."""

    sources: Counter[Source] = field(default_factory=Counter[Source])  # of published words
    late: int = 0
    """Words published when playback might already have passed their start; they were moved to the
    earliest time still ahead of playback."""
    doubtful: int = 0  # words on whose times two aligners disagreed


@dataclass(frozen=True, slots=True)
class ContextWords:
    """Word times: each word of the context once, in order, before the word can be heard."""

    words: tuple[WordTimestamp, ...]


@dataclass(frozen=True, slots=True)
class ContextWordsMoved:
    """Words that were published and whose times have moved, with all published words after them."""

    words: tuple[WordTimestamp, ...]


@dataclass(frozen=True, slots=True)
class ContextFlushed:
    """All text up to the flush is generated; the context's next sample is `end_sample`."""

    flush_id: int
    end_sample: int


@dataclass(frozen=True, slots=True)
class ContextWarned:
    """Output is degraded; `message` says why, and what to do."""

    code: WarningCode
    message: str


@dataclass(frozen=True, slots=True)
class ContextCancelled:
    """The answer to `cancel`; only `ContextDone` follows."""

    cut: Cut
    basis: CutBasis


@dataclass(frozen=True, slots=True)
class ContextFailed:
    """The error that ended the context; only `ContextDone` follows."""

    error: VoiceAgentError


@dataclass(slots=True)
class Milestones:
    """When a context reached its stages, as `time.monotonic()` seconds; None for those not reached.

    Milestones of the engine are also None where the first audio was cached.
    """

    opened_at: float  # the row was reserved
    first_text_at: float | None = None
    submitted_at: float | None = None  # the engine was sent the first segment
    first_audio_at: float | None = None  # the engine's first audio arrived
    first_sent_at: float | None = None  # the first audio left for the listener
    cancelled_at: float | None = None
    ended_at: float = math.nan  # the report was taken

    @property
    def stages_s(self) -> dict[str, float]:
        """Length of each stage before the first audio, by name; only those that were completed.

        `text` waits for a segment, `engine` for its audio, `delivery` for the socket.
        """
        stages = {
            "text": _between(self.first_text_at, self.submitted_at),
            "engine": _between(self.submitted_at, self.first_audio_at),
            "delivery": _between(self.first_audio_at, self.first_sent_at),
        }
        return {name: length_s for name, length_s in stages.items() if length_s is not None}


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


@dataclass(frozen=True, slots=True)
class ContextReport:
    """Metrics of one context, taken at its end."""

    reason: DoneReason
    code: ErrorCode | None  # of the error that ended it
    chars: int  # received
    said_chars: int  # where readings that are longer than their text count with their own length
    audio_samples: int  # made for the listener: stretched, and with the silence of breaks
    discarded_samples: int  # the part of `audio_samples` that a cancel left unplayed
    milestones: Milestones
    underrun_s: float  # total length of the underruns between sent audio
    words: WordCounts
    aligner_lag_s: Mapping[Source, float]  # longest time from audio to an aligner's answer
    word_lag_s: float
    """Longest time from the start of a word in playback to its publication; 0 if all were in
    time."""
    cached_segments: int = 0  # whose audio came from the cache

    @property
    def ttfa_s(self) -> float | None:
        """First text received to first audio sent; None without audio."""
        return _between(self.milestones.first_text_at, self.milestones.first_sent_at)

    @property
    def gen_s(self) -> float:
        """First text received to the end; 0 without text."""
        started_at = self.milestones.first_text_at
        return 0.0 if started_at is None else self.milestones.ended_at - started_at


@dataclass(frozen=True, slots=True)
class ContextDone:
    """The last event of every context.

    `words_final` repeats all words if better times are known than those sent.
    """

    reason: DoneReason
    report: ContextReport
    words_final: tuple[WordTimestamp, ...] | None = None


ContextAnswer = (
    ContextWords
    | ContextWordsMoved
    | ContextFlushed
    | ContextWarned
    | ContextCancelled
    | ContextFailed
)
ContextEvent = AudioChunk | ContextAnswer | ContextDone
