"""How a context ended, when it reached its stages, and what it made: the report at its end."""

import time

from voiceagent_tts.core import PlayoutClock
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.synthesizer.events import ContextReport, DoneReason, Milestones
from voiceagent_tts.synthesizer.intake import Intake
from voiceagent_tts.synthesizer.pacer import Pacer
from voiceagent_tts.synthesizer.segment_source import SegmentSource
from voiceagent_tts.synthesizer.words import WordPublisher


class Outcome:
    """Records why one context ends, and reports it with what the parts of the context counted.

    Args:
        intake: counts the text.
        engine: knows when the engine was asked and answered, and which segments were cached.
        words: counts audio and words.
        pacer: knows when audio was sent first.
        clock: the context's playback.

    Attributes:
        reason: why the context ends; `complete` unless something else ends it first.
    """

    def __init__(
        self,
        intake: Intake,
        engine: SegmentSource,
        words: WordPublisher,
        pacer: Pacer,
        clock: PlayoutClock,
    ) -> None:
        self.reason: DoneReason = "complete"
        self._intake = intake
        self._engine = engine
        self._words = words
        self._pacer = pacer
        self._clock = clock
        self._code: ErrorCode | None = None
        self._opened_at = time.monotonic()
        self._cancelled_at: float | None = None

    def record_cancel(self) -> None:
        """Record when the context was cancelled; the first time counts."""
        self._cancelled_at = self._cancelled_at or time.monotonic()

    def record_error(self, code: ErrorCode) -> None:
        """Record the error that ends the context."""
        self._code = code

    def report(self) -> ContextReport:
        """Return the report of the context, which has ended now."""
        now = time.monotonic()
        audio_samples = self._words.timeline.end_sample
        discarded_samples = 0
        if self.reason == "cancelled":
            discarded_samples = audio_samples - self._clock.played_samples(now)
        return ContextReport(
            reason=self.reason,
            code=self._code,
            chars=self._intake.chars,
            audio_samples=audio_samples,
            discarded_samples=discarded_samples,
            milestones=Milestones(
                self._opened_at,
                now,
                self._intake.first_text_at,
                self._engine.submitted_at,
                self._engine.first_audio_at,
                self._pacer.first_sent_at,
                self._cancelled_at,
            ),
            underrun_s=self._clock.underrun_s,
            words=self._words.timeline.counts,
            aligner_lag_s=self._words.aligner_lag_s,
            word_lag_s=self._words.worst_lag_s,
            cached_segments=self._engine.cached_segments,
            stored_segments=self._engine.stored_segments,
        )
