"""The life of an utterance: text in, audio and word times out, on one clock.

1. `push_text` gives text to the intake, which cuts it into segments.
2. The feed sends each segment to the cache or the engine, and announces its words to the word
   publisher.
3. The pacer grants the engine credit as playback proceeds.
4. `_on_engine_event` receives the audio; words that must precede it are published first.
5. `next_event` returns words, audio and answers; `sent` reports which audio has left.
6. `finish` lets the engine speak the rest. `cancel` frees the row and answers with the cut: what
   was heard and what was not.

Knows no sockets, no wire messages and no torch.
"""

import asyncio
import contextlib
import functools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from enum import IntEnum, auto
from typing import Literal

from voiceagent_tts.core import (
    SAMPLE_RATE_HZ,
    AudioChunk,
    Cut,
    PlayoutClock,
    WarningCode,
)
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, VoiceAgentError
from voiceagent_tts.seam.events import AudioStep, Done, Failed, SegmentEnd, Warned, Words
from voiceagent_tts.synthesizer.aligner_handles import Aligners
from voiceagent_tts.synthesizer.event_queue import EventQueue
from voiceagent_tts.synthesizer.events import (
    ContextCancelled,
    ContextDone,
    ContextEvent,
    ContextFailed,
    ContextReport,
    ContextWarned,
    DoneReason,
    error_of,
)
from voiceagent_tts.synthesizer.flushes import FlushQueue
from voiceagent_tts.synthesizer.intake import Intake
from voiceagent_tts.synthesizer.options import ContextRequest, Limits
from voiceagent_tts.synthesizer.outcome import Outcome
from voiceagent_tts.synthesizer.pacer import Pacer
from voiceagent_tts.synthesizer.segment_source import (
    SegmentSource,
    SourceEvent,
    StoredAudio,
    StoredWords,
)
from voiceagent_tts.synthesizer.speech_feed import SpeechFeed
from voiceagent_tts.synthesizer.spoken_text import SpokenText
from voiceagent_tts.synthesizer.timers import Timer
from voiceagent_tts.synthesizer.words import WordPublisher
from voiceagent_tts.synthesizer.worker_client import WorkerClient
from voiceagent_tts.text.cut import keep_inside
from voiceagent_tts.voices import Voice


class _State(IntEnum):
    """State of a context; later states have higher numbers."""

    OPEN = auto()
    """Accepts text."""
    FINISHING = auto()
    """Accepts no more text; some audio or words are missing."""
    ENDED = auto()
    """Complete, failed or at a limit; sends queued events, then `ContextDone`."""
    CANCELLED = auto()
    """Cancelled; sends only `ContextCancelled` and `ContextDone`."""
    DONE = auto()
    """Has sent `ContextDone`."""


class Context:
    """One agent turn: text in; audio and words out, in order; cancelled at any time.

    Everything here runs on the event loop and returns at once. Use `next_event` with `on_event`, or
    iterate; report each audio chunk that has left with `sent`.

    Args:
        worker: the engine worker.
        request: what the client asked for, resolved.
        limits: limits of every context.
        aligners: find the times of words; None where the engine itself sends them.
        on_event: called whenever `next_event` has something new; None for a caller that iterates.
        on_audio: called for every audio chunk of the engine.
        on_end: receives the context and its report when `ContextDone` leaves.
    """

    def __init__(
        self,
        worker: WorkerClient,
        request: ContextRequest,
        limits: Limits,
        aligners: Aligners | None,
        *,
        on_event: Callable[[], None] | None,
        on_audio: Callable[[], None],
        on_end: "Callable[[Context, ContextReport], None]",
    ) -> None:
        self.options = options = request.options
        self.language = request.language
        self._warnings = deque(request.warnings)
        self._warned: set[str] = set()  # codes of the warnings that the client has
        self._limits = limits
        self._state = _State.OPEN
        self._queue = EventQueue(on_event)
        self._on_audio = on_audio
        self._on_end = on_end
        self._clock = PlayoutClock()
        self._flushes = FlushQueue()
        make_timer = functools.partial(Timer, on_failure=self._on_timer_failure)
        self._idle = make_timer(self._on_idle)
        self._engine = SegmentSource(
            worker,
            request,
            self._on_engine_event,
            lambda *span: self._words.timeline.known_times(*span),
            make_timer,
        )
        self._intake = Intake(
            request,
            limits.settle_s,
            lambda *segment: self._feed.push(*segment),
            lambda pause: self._feed.push_break(pause),
            make_timer,
        )
        self._words = WordPublisher(
            aligners,
            verbatim=self._intake.verbatim,
            recording=request.recording,
            language=self._intake.speech_language,
            speed=request.stretch,
            clock=self._clock,
            publish=self._queue.put_words,
            on_progress=self._on_word_progress,
            make_timer=make_timer,
        )
        to_engine = self._words.timeline.to_engine_samples
        self._pacer = Pacer(
            self._engine, self._clock, to_engine, options.max_lead_s, limits, make_timer
        )
        self._feed = SpeechFeed(
            request,
            self._intake,
            self._engine,
            self._words,
            on_first=self._pacer.update,
            warn=self._warn,
            make_timer=make_timer,
        )
        self._outcome = Outcome(self._intake, self._engine, self._words, self._pacer, self._clock)
        self._engine.prepare()
        self._idle_s = min(limits.context_idle_s, options.idle_s or limits.context_idle_s)
        self._idle.start(self._idle_s)

    @property
    def voice(self) -> Voice:
        """The voice that speaks; where the client left the choice, final with the first segment."""
        return self._engine.voice

    # Text in.

    @property
    def text(self) -> str:
        """The text received so far, verbatim."""
        return self._intake.text

    def push_text(self, delta: str) -> None:
        """Append `delta`, verbatim, to the context's text.

        Raises:
            InvalidRequestError: the context accepts no more text (`context_closed`), or more text
                is waiting than `max_text_chars` (`text_too_long`); nothing of `delta` was accepted.
        """
        self._refuse_unless_open()
        waiting = self._intake.unspoken_chars + len(delta)
        if waiting > self._limits.max_text_chars:
            raise InvalidRequestError(
                f"expected at most {self._limits.max_text_chars} characters waiting to be spoken, "
                f"got {waiting}; send the rest once audio has arrived",
                code=ErrorCode.TEXT_TOO_LONG,
            )
        if delta:
            self._idle.start(self._idle_s)
            while self._warnings:  # now that the client knows that the context is open
                self._warn(self._warnings.popleft())
            self._intake.push(delta)

    def flush(self, flush_id: int) -> None:
        """Speak all text so far; `ContextFlushed(flush_id)` follows its audio and words.

        Raises:
            InvalidRequestError: the context accepts no more text (`context_closed`).
        """
        self._refuse_unless_open()
        self._intake.flush()
        self._feed.complete_text()
        self._flushes.add(flush_id, self._intake.submitted_char_end)
        self._answer_flushes()

    def finish(self) -> None:
        """Accept no more text and speak the text received so far; idempotent."""
        if self._state is not _State.OPEN:
            return
        self._state = _State.FINISHING
        self._idle.stop()
        if not self._feed.finish():
            self._end_audio()

    def cancel(self, played_samples: int | None = None, waiting_text: str = "") -> Cut | None:
        """Stop now and free the row; queued events are dropped.

        Args:
            played_samples: samples of this context that were played, not counting silence from
                underruns; None to go by the playout clock.
            waiting_text: more text of the client, which will not be pushed any more.

        Returns:
            The cut, or None if `ContextDone` has been sent already.
        """
        if self._state is _State.DONE:
            return None
        basis: Literal["played_ms", "clock"] = "clock" if played_samples is None else "played_ms"
        cut = self.cut(played_samples, waiting_text)
        self._outcome.record_cancel()
        self._queue.clear()
        self._queue.put(ContextCancelled(cut, self._clock.sent_samples, basis))
        self._stop_work("cancelled")
        return cut

    def abandon(self) -> None:
        """Cancel for a client that is gone: no event will be sent; idempotent."""
        if self._state is not _State.DONE:
            self.cancel()
            self._report_done()

    def fail(self, error: VoiceAgentError) -> None:
        """End with `error`, for a caller whose call of this context has failed; idempotent.

        The words and audio so far, `ContextFailed` and `ContextDone` follow.
        """
        if self._state < _State.ENDED:
            self._fail(error)

    def cut(self, played_samples: int | None = None, waiting_text: str = "") -> Cut:
        """Return the cut at a playback position, also after the end. Arguments as for `cancel`."""
        if played_samples is None:
            played_samples = self._clock.played_samples(time.monotonic())
        return self.spoken_text(waiting_text).cut(played_samples)

    def spoken_text(self, waiting_text: str = "") -> SpokenText:
        """Return what was said so far, for cuts; after the end, for good.

        Args:
            waiting_text: more text of the client, which was not pushed.
        """
        words, is_final = self._words.published, self._words.is_complete
        if is_final:
            words = keep_inside(words, self._words.timeline.end_sample)
        text = self._intake.text + waiting_text
        return SpokenText(text, words, self._clock.sent_samples, is_final and not waiting_text)

    # Events out.

    def next_event(self) -> ContextEvent | None:
        """Return the next event, or None if there is none yet; words precede all other events."""
        event = self._queue.pop()
        if event is None and self._state in (_State.ENDED, _State.CANCELLED):
            return self._report_done()
        return event

    @property
    def has_words_next(self) -> bool:
        """Whether `next_event` would return words."""
        return self._queue.has_words_next

    @property
    def has_audio_next(self) -> bool:
        """Whether `next_event` would return audio."""
        return self._queue.has_audio_next

    def sent(self, samples: int) -> None:
        """Record that `samples` of this context's audio have just left for the listener."""
        self._pacer.record_sent(samples)
        if self._state < _State.CANCELLED:
            self._words.schedule()

    async def __aiter__(self) -> AsyncIterator[ContextEvent]:
        """Yield every event up to and including `ContextDone`; audio counts as sent when read."""
        while True:
            while (event := self.next_event()) is not None:
                if isinstance(event, AudioChunk):
                    self.sent(event.samples)
                yield event
                if isinstance(event, ContextDone):
                    return
            await self._queue.wait()

    # The engine's events.

    def _on_engine_event(self, event: SourceEvent) -> None:
        match event:
            case AudioStep((row,)):
                self._on_audio()
                self._put_within_limit(self._words.push_audio(row.chunk))
            case StoredAudio(chunk):
                self._put_within_limit(self._words.push_stored_audio(chunk))
            case Words(_, words):
                self._words.add_native_words(words)
            case StoredWords(words):
                self._words.add_stored(words)
            case SegmentEnd(_, char_end, end_sample):
                self._words.end_segment(char_end, end_sample)
                self._queue.put(*self._feed.pop_breaks(char_end))
                self._mark_spoken(char_end)
            case Warned(_, code, message):
                self._warn(ContextWarned(code, message))
            case Done():
                self._engine.release()
                self._end_audio()
            case Failed():
                self._fail(error_of(event))
            case _:
                pass

    def _put_within_limit(self, audio: AudioChunk | None) -> None:
        if audio is not None:
            self._queue.put(audio)
        if self._words.timeline.end_sample > self._limits.max_audio_s * SAMPLE_RATE_HZ:
            self._words.break_off()
            self._stop_work("limit")

    def _end_audio(self) -> None:
        """Handle the end of the context's audio; only words may still be missing."""
        self._queue.put(*self._feed.pop_breaks(self._intake.chars))
        if (rest := self._words.timeline.end_audio()) is not None:
            self._queue.put(rest)
        self._mark_spoken(self._intake.chars)
        self._words.finish()

    def _warn(self, warning: ContextWarned) -> None:
        """Warn the client once of each kind, whether the engine or the server has seen it.

        Other text than a strict client's voice speaks ends the context, when its caller has
        returned: text may be in the middle of being cut into segments.
        """
        if self.options.is_strict and warning.code == WarningCode.LANGUAGE_UNAVAILABLE:
            error = InvalidRequestError(warning.message, code=ErrorCode.LANGUAGE_UNAVAILABLE)
            asyncio.get_running_loop().call_soon(self.fail, error)
        elif warning.code not in self._warned:
            self._warned.add(warning.code)
            self._queue.put(warning)

    def _mark_spoken(self, char_end: int) -> None:
        self._intake.mark_spoken(char_end)
        self._answer_flushes()

    def _on_word_progress(self) -> None:
        self._engine.store_known()
        self._answer_flushes()
        if self._words.is_complete and self._state < _State.ENDED:
            self._stop_work(self._outcome.reason)

    def _answer_flushes(self) -> None:
        if self._state > _State.FINISHING:
            return
        timeline = self._words.timeline
        answers = self._flushes.pop_answers(
            self._intake.spoken_char_end, timeline.end_sample, timeline.next_char
        )
        self._queue.put(*answers)

    # The end.

    def _on_timer_failure(self, error: Exception) -> None:
        self.fail(VoiceAgentError.unexpected(error))

    def _on_idle(self) -> None:
        self._outcome.reason = "idle"
        self.finish()

    def _fail(self, error: VoiceAgentError) -> None:
        with contextlib.suppress(Exception):  # what has failed may fail again
            if error.code is ErrorCode.TEXT_LOST:
                error.spoken_chars = self._words.lose_text(self._intake.spoken_char_end)
                self._queue.clear()  # noise, and the words in it
            else:
                self._words.break_off()
        self._outcome.record_error(error.code)
        self._queue.put(ContextFailed(error))
        self._stop_work("error")

    def _stop_work(self, reason: DoneReason) -> None:
        """Free the row and stop all timers.

        The reader still receives queued events, then `ContextDone`.
        """
        self._outcome.reason = reason
        self._state = _State.CANCELLED if reason == "cancelled" else _State.ENDED
        for part in (self._idle, self._intake, self._feed, self._pacer, self._words):
            part.stop()
        self._engine.release()
        self._queue.notify()

    def _report_done(self) -> ContextDone:
        """End the context for good; return its last event."""
        self._state = _State.DONE
        self._engine.store_known(is_final=True)
        self._words.stop()
        self._queue.clear()
        refined = self._words.refined() if self._words.is_complete else None
        report = self._outcome.report()
        self._on_end(self, report)
        return ContextDone(report.reason, report, refined)

    def _refuse_unless_open(self) -> None:
        if self._state is not _State.OPEN:
            raise InvalidRequestError(
                "this context accepts no more text: it was ended, cancelled, or has failed",
                code=ErrorCode.CONTEXT_CLOSED,
            )
