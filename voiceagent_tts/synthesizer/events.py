"""The events of a context: audio, words, answers, and the report at its end."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from voiceagent_tts.core import AudioChunk, Cut, WarningCode, WordTimestamp
from voiceagent_tts.errors import ErrorCode, VoiceAgentError

DoneReason = Literal["complete", "cancelled", "error", "limit", "idle"]


class Source(IntEnum):
    """Sources of a word's time; the higher number is the better source."""

    ESTIMATE = 0
    """The usual pace of speech."""
    TENTATIVE = 1
    """Times of the online aligner that it may still change."""
    ONLINE = 2
    """The online aligner's committed times."""
    FORCED = 3
    """The forced aligner."""
    NATIVE = 4
    """The engine's own words."""
    CACHE = 5
    """Stored with the audio of a cached phrase."""

    @property
    def label(self) -> str:
        """Name of the source in `/metrics`."""
        # The metric names tentative times by an older word, which dashboards rely on.
        return "outlook" if self is Source.TENTATIVE else self.name.lower()


@dataclass(slots=True)
class WordCounts:
    """Sources and corrections of the words of a context.

    Attributes:
        sources: words published, by source.
        late: words published when playback might already have passed their start; they were moved
            to the earliest time still ahead of playback.
        doubtful: words on whose times two aligners disagreed.
    """

    sources: Counter[Source] = field(default_factory=Counter[Source])
    late: int = 0
    doubtful: int = 0


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
    sent_samples: int
    basis: Literal["played_ms", "clock"]


@dataclass(frozen=True, slots=True)
class ContextFailed:
    """The error that ended the context; only `ContextDone` follows."""

    error: VoiceAgentError


@dataclass(slots=True)
class Milestones:
    """When a context reached its stages, as `time.monotonic()` seconds; None for those not reached.

    Args:
        opened_at: the row was reserved.
        first_text_at: the first text arrived.
        submitted_at: the engine was sent the first segment; None where its audio was cached.
        first_audio_at: the engine's first audio arrived; None as `submitted_at`.
        first_sent_at: the first audio left for the listener.
        cancelled_at: the context was cancelled.
        ended_at: the report was taken.
    """

    opened_at: float
    first_text_at: float | None = None
    submitted_at: float | None = None
    first_audio_at: float | None = None
    first_sent_at: float | None = None
    cancelled_at: float | None = None
    ended_at: float = math.nan

    @property
    def ttfa_s(self) -> float | None:
        """First text received to first audio sent; None without audio."""
        return _between(self.first_text_at, self.first_sent_at)

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
    """Metrics of one context, taken at its end.

    Args:
        reason: why the context ended.
        code: the error that ended it; None without one.
        chars: characters received.
        said_chars: as `chars`, but readings longer than the text they replace count with their own
            length.
        audio_samples: audio made for the listener: stretched, and with the silence of breaks.
        discarded_samples: the part of `audio_samples` that a cancel left unplayed.
        milestones: when it reached its stages.
        underrun_s: total length of the underruns between sent audio.
        words: sources of its words' times.
        aligner_lag_s: longest time from audio to the aligner's answer, by aligner.
        word_lag_s: how late the latest word was: time from its start in playback to its
            publication; 0 if all were in time.
        cached_segments: segments whose audio came from the cache.
    """

    reason: DoneReason
    code: ErrorCode | None
    chars: int
    said_chars: int
    audio_samples: int
    discarded_samples: int
    milestones: Milestones
    underrun_s: float
    words: WordCounts
    aligner_lag_s: Mapping[Source, float]
    word_lag_s: float
    cached_segments: int = 0

    @property
    def ttfa_s(self) -> float | None:
        """First text received to first audio sent; None without audio."""
        return self.milestones.ttfa_s

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
