"""The life of an utterance: text in, audio and word times out, on one clock.

1. `push_text` keeps the text in `Intake`, which divides it a few characters at a time. `_read_on`
   takes its segments, no further ahead of the audio than an engine needs.
2. `_act_on` passes each segment to the engine, and announces its words.
3. `_grant` gives credit, with the first segment and as playback proceeds: to the engine, and to
   audio and breaks that wait.
4. `_on_engine_event` receives audio and words. Audio goes to `Words`, which may ask aligners, and
   into `EventQueue`, where published words come before all else.
5. `_advance` follows every step: it publishes the words that are due, answers flushes, and sets the
   timer for what a part will do by itself.
6. `next_event` reads that queue, audio within the credit; `sent` reports which audio has left.
7. `finish` lets the engine speak the rest. `cancel` frees the row and answers with the cut: what
   was heard and what was not. `ContextDone` is the last event.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import IntEnum, auto
from typing import TYPE_CHECKING

import structlog

from voiceagent_tts.audio.listener_clock import ListenerClock
from voiceagent_tts.core import (
    SAMPLE_RATE_HZ,
    AudioChunk,
    Cut,
    CutBasis,
    Pause,
    PlayoutClock,
    WarningCode,
    WordTimestamp,
)
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, VoiceAgentError, class_of
from voiceagent_tts.seam import events as seam
from voiceagent_tts.seam.events import AudioStep, Done, Event, Failed, SegmentEnd, Warned
from voiceagent_tts.synthesizer.events import (
    ContextCancelled,
    ContextDone,
    ContextEvent,
    ContextFailed,
    ContextFlushed,
    ContextReport,
    ContextWarned,
    ContextWords,
    ContextWordsMoved,
    DoneReason,
    Milestones,
)
from voiceagent_tts.synthesizer.options import ContextRequest, Limits
from voiceagent_tts.synthesizer.segments import (
    Finish,
    Flush,
    Intake,
    QueuedSegment,
    TextPart,
    Turns,
    too_long,
)
from voiceagent_tts.synthesizer.words import WORDS_AT_ONCE, MakeWords, Words
from voiceagent_tts.synthesizer.workers import FindWorker, OnFree, Pacer, Speaker, Worker
from voiceagent_tts.text.cut import TimedText, keep_inside
from voiceagent_tts.voices import Voice

if TYPE_CHECKING:
    from voiceagent_tts.seam.aligner_messages import AlignEvent

STEPS_AT_ONCE = 3  # in one iteration of the event loop: each speaks one segment and takes 1 ms
_MAX_FINAL_WORDS = 1_500  # that are repeated at the end: ten minutes of speech
_MAX_FLUSHES = 1_000  # of one context whose answers were not read yet
_LANGUAGE = WarningCode.LANGUAGE_UNAVAILABLE
_CHECKED_CHARS = 60  # after which the language of token-fed text is checked
_UNSPEAKABLE = (
    "expected letters or digits that this voice can speak in this language, got none; choose "
    "another voice or language"
)

OnSurplus = Callable[[int, Callable[[VoiceAgentError], None]], None]
"""Receives a number of characters, and what ends the context if they are too many."""

_log = structlog.get_logger(__name__)


class ContextState(IntEnum):
    """State of a context; later states have higher numbers."""

    OPEN = auto()  # accepts text
    FINISHING = auto()  # accepts no more text; some audio is missing
    GENERATED = auto()  # all audio is here; some words are missing, or may get better times
    ENDED = auto()  # no more events arise; those that are queued can still be read
    CLOSED = auto()  # reported; there are no more events


class EventQueue:
    """Events that the reader of a context has not taken yet; words come before all others."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self.notify = notify
        self.words: list[WordTimestamp] = []
        self.moved: list[WordTimestamp] = []  # better times of words that were sent already
        self.others: deque[ContextEvent] = deque()

    def put(self, *events: ContextEvent) -> None:
        """Append events other than words; each `put` notifies the reader."""
        if events:
            self.others += events
            self.notify()

    def put_words(self, words: Iterable[WordTimestamp]) -> None:
        """Append words."""
        self.words += words
        self.notify()

    def put_moved(self, words: Sequence[WordTimestamp]) -> None:
        """Append better times; they replace those of the same and of later words."""
        first = words[0].word.char_start
        self.moved = [*(each for each in self.moved if each.word.char_start < first), *words]
        self.notify()

    def pop(self, granted_samples: float) -> ContextEvent | None:
        """Remove and return the next event; None where there is none, or it is held."""
        if self.words:
            words, self.words = self.words[:WORDS_AT_ONCE], self.words[WORDS_AT_ONCE:]
            return ContextWords(tuple(words))
        if self.moved:
            words, self.moved = self.moved, []
            return ContextWordsMoved(tuple(words))
        return self.others.popleft() if self.others and not self.is_held(granted_samples) else None

    def is_held(self, granted_samples: float) -> bool:
        """Whether the next event, words apart, is audio that playback does not allow yet."""
        return bool(self.others) and _is_audio_from(self.others[0], granted_samples)

    def has_audio_next(self, granted_samples: float) -> bool:
        """Whether `pop` would return audio."""
        is_audio = bool(self.others) and isinstance(self.others[0], AudioChunk)
        return is_audio and not self.has_words_next and not self.is_held(granted_samples)

    @property
    def has_words_next(self) -> bool:
        """Whether `pop` would return words, or better times of words."""
        return bool(self.words or self.moved)

    def __bool__(self) -> bool:
        return self.has_words_next or bool(self.others)

    def clear(self) -> None:
        """Drop all events."""
        self.words, self.moved, self.others = [], [], deque()

    def drop_lost(self, char_end: int, end_sample: int) -> None:
        """Drop the audio of lost text, from a sample on, and words that end after a character."""
        self.words = [each for each in self.words if each.word.char_end <= char_end]
        self.moved = [each for each in self.moved if each.word.char_end <= char_end]
        self.others = deque(each for each in self.others if not _is_audio_from(each, end_sample))


def _is_audio_from(event: ContextEvent, start_sample: float) -> bool:
    return isinstance(event, AudioChunk) and event.start_sample >= start_sample


def _intake_of(request: ContextRequest, limits: Limits) -> Intake:
    if not (request.lexicons or request.options.has_markup):
        return Intake(request, limits)
    from voiceagent_tts.synthesizer.masked_intake import MaskedIntake  # here: most need none

    return MaskedIntake(request, limits)


def _listener_of(request: ContextRequest) -> ListenerClock:
    if request.stretch == 1.0 and not request.options.has_markup:
        return ListenerClock()
    from voiceagent_tts.audio.changed_clock import ChangedClock  # here: most contexts need none

    return ChangedClock(request.stretch)


class Context:
    """One agent turn: text in; audio and words out, in order; cancelled at any time.

    Everything here runs on the event loop and returns at once. Use `next_event` with `on_event`, or
    iterate; report each audio chunk that has left with `sent`.

    Args:
        make_words: makes the words where the engine does not report them; None where it does.
        on_event: called whenever `next_event` has something new; None for a caller that iterates.
        on_end: receives the context and its report when the context is closed.
        on_surplus: receives the characters by which new readings are longer than their text.
        turns: says when the context may read text: all contexts together, `STEPS_AT_ONCE` steps in
            each iteration of the event loop; None for a context alone.
        owner: the owner whose turns the context takes.
    """

    def __init__(
        self,
        worker: Worker,
        request: ContextRequest,
        limits: Limits,
        make_words: MakeWords | None,
        *,
        on_event: Callable[[], None] | None,
        on_end: "Callable[[Context, ContextReport], None]",
        on_free: OnFree | None = None,
        on_surplus: OnSurplus | None = None,
        turns: Turns | None = None,
        owner: str = "",
        find_worker: FindWorker | None = None,
    ) -> None:
        self.request, options = request, request.options
        self.state = ContextState.OPEN
        self._limits = limits
        self._on_end = on_end
        self._on_surplus = on_surplus
        self._milestones = Milestones(time.monotonic())
        self._reason: DoneReason = "complete"
        self._error_code: ErrorCode | None = None
        self._cached_segments = 0

        self._listener = _listener_of(request)  # it may fail, and no row is taken yet
        self._clock = PlayoutClock()
        self._intake = _intake_of(request, limits)
        self._turns = turns or Turns(STEPS_AT_ONCE)
        self._owner = owner
        self._waits_for_turn = False
        self._counted_surplus = 0
        self._speaker = Speaker(worker, request, self._on_engine_event, on_free, find_worker)
        clocks, verbatim = (self._clock, self._listener), self._intake.verbatim
        if make_words is None:
            self._words = Words(*clocks, verbatim)
        else:
            self._words = make_words(*clocks, request.voice.recording, self._on_times, verbatim)
        self._pacer = Pacer(self._clock, options.max_lead_s, limits)

        self._language_checked_end = 0  # of the text whose language was checked
        self._flushes: deque[Flush] = deque()  # whose text has audio to come
        self._generated_flushes: deque[tuple[Flush, int]] = deque()  # with the end of its audio
        self._waiting_flushes = 0
        self._warned: set[str] = set()  # codes of the warnings that the client has
        self._generated_end_sample = 0  # end of the segments that are whole, and of their breaks
        self._arrival = asyncio.Event()
        self._events = EventQueue(on_event or self._arrival.set)

        self._idle_s = min(limits.context_idle_s, options.idle_s or limits.context_idle_s)
        self._idle_at: float | None = self._milestones.opened_at + self._idle_s
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._speaker.prepare()
        self._set_timer(self._milestones.opened_at)

    @property
    def voice(self) -> Voice:
        """The voice that speaks; where the client left the choice, final with the first segment."""
        return self._speaker.request.voice

    @property
    def worker(self) -> Worker:
        """The worker, or a proxy in front of it; final when `voice` is."""
        return self._speaker.worker

    # Text in.

    @property
    def text(self) -> str:
        """The text received so far, verbatim."""
        return self._intake.text

    def push_text(self, delta: str) -> None:
        """Append `delta`, verbatim, to the context's text.

        Raises:
            InvalidRequestError: the context accepts no more text (`context_closed`), or more text
                is waiting than `max_text_chars`, or it is too much for one context
                (`text_too_long`); nothing of `delta` was accepted.
        """
        self._refuse_unless_open()
        if delta:
            self._intake.receive(delta)
            now = time.monotonic()
            self._idle_at = now + self._idle_s
            if self._milestones.first_text_at is None:
                self._milestones.first_text_at = now
                for warning in self.request.warnings:  # the client knows that the context is open
                    self._warn(warning)
            self._read_on(now)

    def flush(self, flush_id: int) -> None:
        """Speak all text so far; `ContextFlushed(flush_id)` follows its audio and words.

        Raises:
            InvalidRequestError: the context accepts no more text (`context_closed`), or too many
                flushes wait (`text_too_long`).
        """
        self._refuse_unless_open()
        if self._waiting_flushes == _MAX_FLUSHES:
            raise too_long(f"{_MAX_FLUSHES} flushes without an answer; wait for `flushed`")
        self._waiting_flushes += 1
        self._intake.received.append(Flush(flush_id, self._intake.chars))
        self._read_on(time.monotonic())

    def finish(self) -> None:
        """Accept no more text and speak the text received so far; idempotent."""
        if self.state is ContextState.OPEN:
            self._finish()
            self._read_on(time.monotonic())

    def _finish(self) -> None:
        self.state = ContextState.FINISHING
        self._idle_at = None
        self._intake.received.append(Finish())

    # Received text is read in bounded steps.

    def _read_on(self, now: float) -> None:
        """Divide and speak received text while `Turns` allows; the rest when it is its turn."""
        while self._can_read and self._turns.take_now():
            self._read_step(now)
        self._advance(now)

    def _read_step(self, now: float) -> None:
        with self._failing():  # its text may have been accepted long ago
            for part in self._intake.pop_parts(now):
                self._act_on(part, now)
            self._count_surplus()

    @property
    def _can_read(self) -> bool:
        if self.state >= ContextState.ENDED or not (self._intake.received or self._intake.divided):
            return False
        return not (self._speaker.is_active and self._intake.is_far_ahead)  # its audio comes first

    def _count_surplus(self) -> None:
        """Report by how much new readings are longer than their text; fail if it is too much."""
        surplus = self._intake.surplus_chars - self._counted_surplus
        if surplus:
            self._counted_surplus += surplus
            if self._on_surplus is not None:
                self._on_surplus(surplus, self.fail)
            self._intake.check_readings()

    def _request_turn(self, steps: int = 1) -> None:
        """Have `_on_turn` called when it is the owner's turn, for work that counts as `steps`."""
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._turns.add(self._owner, self._on_turn, steps)

    def _on_turn(self) -> None:
        self._waits_for_turn = False
        now = time.monotonic()
        if self._can_read:
            self._read_step(now)
        self._read_on(now)

    def _act_on(self, part: TextPart, now: float) -> None:
        if self.state >= ContextState.ENDED:
            return
        match part:
            case QueuedSegment():
                self._speak_segment(part, now)
            case Pause():
                self._listener.expect_break(part)
                self._complete_text(part.char_end)
            case Flush():
                self._complete_text(part.char_end)
                self._flushes.append(part)
            case Finish():
                self._end_text(self._intake.divided_char_end, now)

    def _end_text(self, char_end: int, now: float) -> None:
        self._check_language(char_end)
        self._words.complete_word()
        if self.state >= ContextState.ENDED:
            return
        if self._speaker.is_active:
            self._speaker.end_text(char_end)
        else:  # the context received no text
            self._end_audio(now)

    def _speak_segment(self, queued: QueuedSegment, now: float) -> None:
        segment = queued.segment
        if queued.language is not None:
            self._speaker.choose_worker(queued.language)
        if segment.readings and not self._speaker.request.reads_ipa:
            from voiceagent_tts.synthesizer.masked_intake import ipa_warning  # here: few have IPA

            self._warn(ipa_warning(segment, self._intake))
        if self._speaker.request.languages:
            least_chars = _CHECKED_CHARS if queued.is_growing else 1
            self._check_language(segment.char_end, least_chars=least_chars)
        if self.state >= ContextState.ENDED:
            return
        is_first = not self._speaker.is_active
        self._speaker.speak(queued)
        self._words.expect(segment, is_whole=not queued.is_growing)
        if is_first:
            self._milestones.submitted_at = now
            self._grant(now)

    def _check_language(self, char_end: int, *, least_chars: int = 1) -> None:
        """Warn about text that the voice does not speak, once there is enough text to tell."""
        start, is_known = self._language_checked_end, _LANGUAGE in self._warned
        given, spoken = self.request.language, self._speaker.request.languages
        if not spoken or is_known or char_end - start < least_chars:
            return
        from voiceagent_tts.text.unserved import unspoken_language  # here: not for all voices

        self._language_checked_end = char_end
        text = self._intake.text_between(start, char_end)
        if (found := unspoken_language(text, given, spoken)) is not None:
            message = (
                f"expected text in a language of this context ({given or ', '.join(spoken)}), "
                f"got text that seems to be in {found}; choose another voice, or set `language`"
            )
            self._warn(ContextWarned(_LANGUAGE, message))

    def _complete_text(self, char_end: int) -> None:
        """Make the engine of a token-fed context speak all text before `char_end`."""
        self._check_language(char_end)
        if self.request.feeding == "token" and self._speaker.is_active:
            self._speaker.flush()
            self._words.complete_word()

    # Its user ends the context.

    def cancel(self, played_samples: int | None = None, waiting_text: str = "") -> None:
        """Stop now, free the row and answer with the cut; queued events are dropped.

        Args:
            played_samples: samples of this context that were played, not counting silence from
                underruns; None to go by the playout clock.
            waiting_text: text of the client that follows and was not pushed.
        """
        if self.state is not ContextState.CLOSED:
            basis: CutBasis = "clock" if played_samples is None else "played_ms"
            self._end_cancelled(ContextCancelled(self.cut(played_samples, waiting_text), basis))

    def abandon(self) -> None:
        """Cancel the context of a client that has disconnected; sends no events; idempotent."""
        if self.state is not ContextState.CLOSED:
            self._end_cancelled()
            self._close()

    def _end_cancelled(self, *answer: ContextCancelled) -> None:
        self._milestones.cancelled_at = self._milestones.cancelled_at or time.monotonic()
        self._events.clear()
        self._error_code = None  # the client is not told of an earlier failure
        self._events.put(*answer)
        self._end("cancelled")

    def fail(self, error: VoiceAgentError) -> None:
        """End with `error`; idempotent.

        The words and audio so far, `ContextFailed` and `ContextDone` follow.
        """
        if self.state >= ContextState.ENDED:
            return
        try:
            self._publish_last_words(error)
        except Exception as failure:  # what has failed may fail again
            _log.error("last_words_failed", error=type(failure).__name__)
        self._error_code = error.code
        self._events.put(ContextFailed(error))
        self._end("error")

    def _publish_last_words(self, error: VoiceAgentError) -> None:
        """Publish the words of the audio so far, or retract those of a text that was lost."""
        if error.code is ErrorCode.TEXT_LOST:
            from voiceagent_tts.synthesizer.lost_text import lose_text  # here: few engines do

            ends = self._intake.generated_char_end, self._generated_end_sample
            error.spoken_chars, end_sample = lose_text(self._words, *ends)
            self._events.drop_lost(error.spoken_chars, end_sample)
        else:
            self._words.break_off()
            self._publish(time.monotonic())

    def cut(self, played_samples: int | None = None, waiting_text: str = "") -> Cut:
        """Return the cut at a playback position, also after the end. Arguments as for `cancel`."""
        if played_samples is None:
            played_samples = self._clock.played_samples(time.monotonic())
        return self.timed_text(waiting_text).cut(played_samples)

    def timed_text(self, waiting_text: str = "") -> TimedText:
        """Return the text and the word times so far, for cuts; they are final after the end.

        `waiting_text` is text of the client that follows and was not pushed.
        """
        words, is_final = self._words.best, self._words.is_complete
        if self._words.has_all_audio:
            words = keep_inside(words, self._listener.end_sample)
        text = self._intake.text + waiting_text
        return TimedText(text, words, self._clock.sent_samples, is_final and not waiting_text)

    # Events out.

    def next_event(self) -> ContextEvent | None:
        """Return the next event, or None if there is none yet; words precede all other events.

        Audio waits for credit, and what follows it waits with it. `ContextDone` is the last event.
        """
        if (event := self._events.pop(self._granted_samples)) is None:
            if self.state is ContextState.ENDED and not self._events:
                return self._close()
            self._arrival.clear()
        elif isinstance(event, ContextFlushed):
            self._waiting_flushes -= 1
        return event

    @property
    def has_words_next(self) -> bool:
        """Whether `next_event` would return `ContextWords` or `ContextWordsMoved`."""
        return self._events.has_words_next

    @property
    def has_audio_next(self) -> bool:
        """Whether `next_event` would return audio."""
        return self._events.has_audio_next(self._granted_samples)

    def _close(self) -> ContextDone:
        """Report the context, which has ended, and return its last event."""
        self.state = ContextState.CLOSED
        self._stop_timer()
        self._events.clear()
        words, final = self._words, None
        is_better = words.is_complete and words.may_be_better
        if is_better and len(words.published) <= _MAX_FINAL_WORDS:
            final = tuple(keep_inside(words.best, self._listener.end_sample))
        report = self._report()
        self._on_end(self, report)
        return ContextDone(report.reason, report, final)

    def sent(self, samples: int) -> None:
        """Record that `samples` of this context's audio have just left for the listener."""
        now = time.monotonic()
        if self._milestones.first_sent_at is None:
            self._milestones.first_sent_at = now
        self._clock.send(samples, now)
        with self._failing():
            if self._grant(now):
                self._advance(now)
        self._set_timer(now)

    async def __aiter__(self) -> AsyncIterator[ContextEvent]:
        """Yield every event up to and including `ContextDone`; audio counts as sent when read."""
        while True:
            while (event := self.next_event()) is not None:
                if isinstance(event, AudioChunk):
                    self.sent(event.samples)
                yield event
                if isinstance(event, ContextDone):
                    return
            await self._arrival.wait()

    # Events of the engine and answers of the aligners.

    def _on_engine_event(self, event: "Event | AlignEvent") -> None:
        now = time.monotonic()
        self._handle(event, now)
        self._read_on(now)

    def _on_times(self, moved: list[WordTimestamp], now: float) -> None:
        """Handle an answer of an aligner, which may move words that were sent already."""
        if moved and self.state < ContextState.ENDED:
            self._events.put_moved(self._kept_inside(moved))
        self._advance(now)

    def _kept_inside(self, moved: list[WordTimestamp]) -> list[WordTimestamp]:
        """Keep words inside the audio, if all audio of their text has arrived."""
        generated = sum(each.word.char_start < self._intake.generated_char_end for each in moved)
        return [*keep_inside(moved[:generated], self._listener.end_sample), *moved[generated:]]

    def _handle(self, event: "Event | AlignEvent", now: float) -> None:
        match event:
            case AudioStep((audio,)):
                self._put_audio(audio.chunk, now)
            case seam.Words(_, words, is_cached):
                self._cached_segments += is_cached
                self._words.add_exact(words, is_cached=is_cached)
            case SegmentEnd(_, char_end, end_sample):
                self._words.end_segment(char_end, end_sample)
                self._put_breaks(char_end, now)
                if self.state >= ContextState.ENDED:  # breaks, too, count as audio
                    return
                self._intake.mark_generated(char_end)
                if self._is_awaited(char_end):
                    self._events.put(*self._listener.drain(char_end))
                self._generated_end_sample = self._listener.end_sample
            case Warned(_, code, message):
                self._warn(ContextWarned(code, message))
            case Done(_, end_sample, is_unspeakable):
                self._speaker.release()
                if is_unspeakable and not end_sample:
                    code = ErrorCode.TEXT_UNSPEAKABLE
                    self.fail(InvalidRequestError(_UNSPEAKABLE, code=code))
                else:
                    self._end_audio(now)
            case Failed(_, code, message, retry_after_ms):
                self.fail(class_of(code)(message, code=code, retry_after_ms=retry_after_ms))
            case _:
                pass

    def _is_awaited(self, char_end: int) -> bool:
        rest = self._intake.text_between(char_end, self._intake.divided_char_end)
        is_flushed = bool(self._flushes) and self._flushes[0].char_end <= char_end
        return is_flushed or not rest.strip()

    def _put_audio(self, chunk: AudioChunk, now: float) -> None:
        if chunk.start_sample == 0 and self._cached_segments:
            self._milestones.submitted_at = None  # the first audio is cached
        elif chunk.start_sample == 0:
            self._milestones.first_audio_at = now
        if (audio := self._listener.push_audio(chunk)) is not None:
            self._events.put(audio)
        self._words.push_audio(chunk, self._intake.speech_language)
        self._end_at_limit(now)

    def _end_at_limit(self, now: float) -> None:
        if self._listener.end_sample > self._limits.max_audio_s * SAMPLE_RATE_HZ:
            self._words.break_off()
            self._publish(now)
            self._end("limit")

    def _put_breaks(self, char_end: int, now: float) -> None:
        for silence in self._listener.breaks_before(char_end):
            self._events.put(*silence)
            self._end_at_limit(now)
            if self.state >= ContextState.ENDED:
                return

    def _end_audio(self, now: float) -> None:
        self.state = ContextState.GENERATED
        self._put_breaks(self._intake.chars, now)
        if self.state >= ContextState.ENDED:
            return
        self._events.put(*self._listener.drain(self._intake.chars))
        self._intake.mark_generated(self._intake.chars)
        self._words.end_audio(now)

    # After each step.

    def _advance(self, now: float) -> None:
        with self._failing():
            self._publish(now)
            if self.state < ContextState.ENDED:
                if self._flushes or self._generated_flushes:
                    self._answer_flushes()
                if self.state is ContextState.GENERATED and self._words.is_complete:
                    self._end(self._reason)
            if self._events.is_held(self._granted_samples):
                self._grant(now)
        if self._can_read:
            self._request_turn()
        self._set_timer(now)

    def _publish(self, now: float) -> None:
        if self.state < ContextState.ENDED and (words := self._words.pop_due(now)):
            self._events.put_words(words)
            if len(words) == WORDS_AT_ONCE:
                self._request_turn(STEPS_AT_ONCE)

    @property
    def _granted_samples(self) -> float:
        """Audio that may be sent; all of it after a failure, which the client learns at once."""
        return self._pacer.granted_samples if self._error_code is None else math.inf

    @property
    def _awaits_credit(self) -> bool:
        is_waiting = self._listener.end_sample > self._pacer.granted_samples
        return self._speaker.is_active or (is_waiting and bool(self._events.others))

    def _grant(self, now: float) -> bool:
        """Give the engine and the queue the credit of playback; return whether it has grown."""
        is_held = self._events.is_held(self._granted_samples)
        if not self._awaits_credit or (samples := self._pacer.more_samples(now)) is None:
            return False
        if is_held:
            self._events.notify()
        if self._speaker.is_active:
            playout_end = max(self._clock.playout_end, now)
            self._speaker.grant(playout_end, self._listener.to_engine_samples(samples))
        return True

    def _answer_flushes(self) -> None:
        while self._flushes and self._flushes[0].char_end <= self._intake.generated_char_end:
            self._generated_flushes.append((self._flushes.popleft(), self._listener.end_sample))
        next_char = self._words.next_char
        while self._generated_flushes:
            flush, end_sample = self._generated_flushes[0]
            if next_char is not None and next_char < flush.char_end:
                return
            self._events.put(ContextFlushed(flush.flush_id, end_sample))
            self._generated_flushes.popleft()

    def _set_timer(self, now: float) -> None:
        due_at = self._pacer.due_at if self._awaits_credit else None
        if self.state < ContextState.ENDED:
            may_expire = None if self._intake.received else self._intake.due_at
            times = (self._idle_at, may_expire, due_at, self._words.due_at)
            due_at = min((at for at in times if at is not None), default=None)
        if due_at is None or (self._timer is not None and self._timer_at <= due_at):
            return
        self._stop_timer()
        delay_s = max(0.0, due_at - now)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)
        self._timer_at = due_at

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        now = max(time.monotonic(), self._timer_at)  # the loop may call slightly early
        with self._failing():
            self._grant(now)
            if self.state < ContextState.ENDED:
                self._intake.expire(now)  # speak text whose wait is over
                if self._idle_at is not None and self._idle_at <= now:
                    self._reason = "idle"
                    self._finish()
        self._read_on(now)

    @contextmanager
    def _failing(self) -> Generator[None]:
        """Turn any error in the block into the failure of the context, and of no other."""
        try:
            yield
        except Exception as error:
            self.fail(VoiceAgentError.wrapping(error))

    def _warn(self, warning: ContextWarned | None) -> None:
        """Send one warning of each kind; with `is_strict`, a wrong language ends the context."""
        if warning is None or warning.code in self._warned:
            return
        if self.request.options.is_strict and warning.code == _LANGUAGE:
            self.fail(InvalidRequestError(warning.message, code=ErrorCode.LANGUAGE_UNAVAILABLE))
        else:
            self._warned.add(warning.code)
            self._events.put(warning)

    # The end.

    def _end(self, reason: DoneReason) -> None:
        self._reason = reason
        self.state = ContextState.ENDED
        self._stop_timer()
        self._intake.clear()
        self._words.stop()
        self._speaker.release()
        self._set_timer(time.monotonic())
        self._events.notify()

    def _report(self) -> ContextReport:
        now = time.monotonic()
        audio_samples = self._listener.end_sample
        left_samples = audio_samples - self._clock.played_samples(now)
        return ContextReport(
            reason=self._reason,
            code=self._error_code,
            chars=self._intake.chars,
            said_chars=self._intake.chars + self._intake.surplus_chars,
            audio_samples=audio_samples,
            discarded_samples=left_samples if self._reason == "cancelled" else 0,
            milestones=replace(self._milestones, ended_at=now),
            underrun_s=self._clock.underrun_s,
            words=self._words.counts,
            aligner_lag_s=self._words.aligner_lag_s,
            word_lag_s=self._words.worst_lag_s,
            cached_segments=self._cached_segments,
        )

    def _refuse_unless_open(self) -> None:
        if self.state is ContextState.OPEN:
            return
        why = {
            "limit": f"its audio has reached max_audio_s ({self._limits.max_audio_s:g} s)",
            "idle": f"it had received none for {self._idle_s:g} s",
        }.get(self._reason, "it was ended, cancelled, or has failed")
        raise InvalidRequestError(
            f"this context accepts no more text: {why}; send the rest to a new context",
            code=ErrorCode.CONTEXT_CLOSED,
        )
