"""The straight path: a context takes text in and gives audio and word times out, on one clock.

`Synthesizer.open` reserves a row on the worker that speaks the voice. The context cuts its text
into segments, hands them to the worker, and paces it by credit: a row is stepped only as far ahead
of its listener as `max_lead_s` allows. What comes back is queued in order for whoever owns the
listener, who says with `sent` what has left. This module knows no sockets, no messages of the wire
and no torch.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from voiceagent_tts.core import (
    SAMPLE_RATE_HZ,
    AudioChunk,
    Cut,
    PlayoutClock,
    Segment,
    Word,
    WordTimestamp,
)
from voiceagent_tts.errors import (
    EngineError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    VoiceAgentError,
)
from voiceagent_tts.seam.alignment import Aligned, AlignEvent
from voiceagent_tts.seam.commands import (
    Append,
    Credit,
    Feeding,
    Flush,
    Prepare,
    SpeechOptions,
    Submit,
)
from voiceagent_tts.seam.events import (
    AudioStep,
    Capabilities,
    Done,
    Event,
    Failed,
    SegmentEnd,
    Words,
)
from voiceagent_tts.synthesizer.aligner_handles import Aligners, Follower
from voiceagent_tts.synthesizer.supervisor import Supervisor
from voiceagent_tts.synthesizer.timeline import Timeline
from voiceagent_tts.synthesizer.word_policy import Source, WordFigures
from voiceagent_tts.synthesizer.worker_client import WorkerClient
from voiceagent_tts.text.cut import cut_text, keep_inside
from voiceagent_tts.text.language import detect_language, normalize_language
from voiceagent_tts.text.segmenter import Segmenter
from voiceagent_tts.voices import Voice, VoiceBook, VoiceFolder

_MIN_LEAD_S = 0.2
"""Shorter leads count as this one: below it, timers and the resampler's delay eat the lead."""
_LONGEST_STEP_S = 0.5
_WORDS_WAIT_S = 5.0
"""A context whose audio is complete waits no longer than this for its aligners."""
_REFINING_WAIT_S = 0.25
"""And no longer than this for better times of words that have all left."""

DoneReason = Literal["complete", "cancelled", "error", "limit", "idle"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one context may ask for.

    Args:
        max_text_chars: text received and not yet spoken.
        max_audio_s: audio of one context; more ends it with reason `limit`.
        context_idle_s: a context that gets no text for this long is ended with reason `idle`.
        settle_s: silence of the client after which a sentence end at the end is certain.
        max_lead_s: how far a row may run ahead of its listener where the context does not say.
        max_unsent_s: how far a row may run ahead of what has been sent: the audio in memory.
        worker_wait_s: how long `open` waits for a worker that is being restarted.
    """

    max_text_chars: int = 20_000
    max_audio_s: float = 3600.0
    context_idle_s: float = 120.0
    settle_s: float = 0.15
    max_lead_s: float = 8.0
    max_unsent_s: float = 10.0
    worker_wait_s: float = 5.0


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """What a client chooses for a context.

    Args:
        voice: a name of `VoiceBook`; None for the first voice.
        language: name, code or region code; None to detect it for each segment.
        speech: options for the engine, passed on to it unchanged.
        max_buffer_delay_ms: longest wait of buffered text for the rest of its sentence.
        max_lead_s: longest lead of the audio over its playback; None for the server's limit, 0
            for no pacing (files).
        text_feeding: how text reaches the engine; None for the engine's preferred way.
        wants_words: whether the client uses word times; without, no aligner follows the context.
        is_probe: whether this is the server's own health check, which the metrics leave out.
    """

    voice: str | None = None
    language: str | None = None
    speech: SpeechOptions = SpeechOptions()
    max_buffer_delay_ms: int = 500
    max_lead_s: float | None = None
    text_feeding: Feeding | None = None
    wants_words: bool = True
    is_probe: bool = False


@dataclass(frozen=True, slots=True)
class ContextWords:
    """Word times, each word of the context once, in order, ahead of the audio they describe."""

    words: tuple[WordTimestamp, ...]


@dataclass(frozen=True, slots=True)
class ContextFlushed:
    """All text up to the flush is spoken; the context's next sample is `end_sample`."""

    flush_id: int
    end_sample: int


@dataclass(frozen=True, slots=True)
class ContextCancelled:
    """The answer to `cancel`; only `ContextDone` follows."""

    cut: Cut
    sent_samples: int
    basis: Literal["played_ms", "clock"]


@dataclass(frozen=True, slots=True)
class ContextFailed:
    """What went wrong; only `ContextDone` follows."""

    error: VoiceAgentError


@dataclass(frozen=True, slots=True)
class ContextDone:
    """The last event of every context.

    `words_final` holds all words again, where better times are known now than when they left.
    """

    reason: DoneReason
    report: "ContextReport"
    words_final: tuple[WordTimestamp, ...] | None = None


ContextEvent = (
    AudioChunk | ContextWords | ContextFlushed | ContextCancelled | ContextFailed | ContextDone
)


@dataclass(frozen=True, slots=True)
class ContextReport:
    """A context in numbers, when it has ended.

    Args:
        reason: why it ended.
        chars: characters received.
        audio_samples: samples handed out by the engine.
        discarded_samples: of those, the ones that nobody heard because of a cancel.
        ttfa_s: first text received to first audio sent; None where there was none.
        gen_s: first text received to the end.
        underrun_s: silence between sent audio that the listener heard.
        words: how its words got their times.
        aligner_lag_s: longest time from sound to an aligner's answer, by aligner.
    """

    reason: DoneReason
    chars: int
    audio_samples: int
    discarded_samples: int
    ttfa_s: float | None
    gen_s: float
    underrun_s: float
    words: WordFigures
    aligner_lag_s: Mapping[Source, float]


Observe = Callable[[ContextReport], None]


class Synthesizer:
    """All workers of this server, and the contexts that they speak.

    Args:
        supervisors: the engines, by name.
        limits: what one context may ask for.
        observe: told of every context that has ended.
        clones: where cloned voices are kept.
        aligners: who finds the times of words; without, only engines that tell them do.
    """

    def __init__(
        self,
        supervisors: Mapping[str, Supervisor],
        limits: Limits | None = None,
        observe: Observe = lambda report: None,
        clones: VoiceFolder | None = None,
        aligners: Aligners | None = None,
    ) -> None:
        self._clones = clones
        self._aligners = aligners or Aligners({})
        self._supervisors = dict(supervisors)
        self.limits = limits or Limits()
        self._observe = observe
        self._contexts: set[Context] = set()
        self.heard_at = -math.inf
        """When a worker last sent audio, on `time.monotonic`."""

    async def start(self) -> None:
        """Start the workers.

        Raises:
            EngineError: one of them cannot start; those that did are stopped again.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for supervisor in self._supervisors.values():
                    group.create_task(supervisor.start())
        except* VoiceAgentError as errors:
            await self.close()
            raise errors.exceptions[0] from None
        await self._start_aligners()
        self.voices = VoiceBook(
            {name: supervisor.capabilities for name, supervisor in self._supervisors.items()},
            self._clones,
        )

    async def _start_aligners(self) -> None:
        """Start them where an engine does not tell when its words sound."""
        if all(self._is_native(each.capabilities) for each in self._supervisors.values()):
            return
        try:
            await self._aligners.start()
        except VoiceAgentError:
            await self.close()
            raise

    async def close(self) -> None:
        """Cancel every context and stop the workers; idempotent."""
        for context in list(self._contexts):
            context.cancel()
        closing = [supervisor.close() for supervisor in self._supervisors.values()]
        await asyncio.gather(*closing, self._aligners.close())

    @property
    def contexts_active(self) -> int:
        """Contexts that are open and have not ended, the server's own probes left out."""
        return sum(not context.options.is_probe for context in self._contexts)

    @property
    def supervisors(self) -> Mapping[str, Supervisor]:
        """The engine workers by name."""
        return self._supervisors

    @property
    def aligners(self) -> Mapping[str, Supervisor]:
        """The aligner workers by name."""
        return self._aligners.supervisors

    async def open(
        self, options: ContextOptions, on_event: Callable[[], None] | None = None
    ) -> "Context":
        """Reserve a row for a new context.

        Args:
            options: how it is spoken.
            on_event: called whenever `next_event` has something new; on the event loop.

        Raises:
            InvalidRequestError: an unknown voice or language, or something the voice cannot do.
            OverloadedError: no row is free, or the worker is being restarted.
        """
        voice, language, capabilities = self._resolve(options)
        worker = await self._least_loaded(voice)
        rows = capabilities.max_rows
        if options.speech.is_batch:
            rows = capabilities.max_batch_rows or rows
        if worker.rows_used >= rows:
            raise OverloadedError(
                f"all {rows} rows of this voice's engine are in use",
                retry_after_ms=round(1000 * worker.stats.figures.get("retry_after_seconds", 0.5)),
            )
        followers = self._followers(options, capabilities)
        context = Context(worker, options, voice, language, self.limits, followers, on_event)
        self._contexts.add(context)
        context.on_audio, context.on_end = self._hear, self._forget
        context.prepare()
        return context

    async def _least_loaded(self, voice: Voice) -> WorkerClient:
        """The worker with the fewest contexts of those that speak this voice alike."""
        workers = [alike.worker for alike in self._alike(voice)]
        running = [worker for worker in workers if worker is not None]
        if not running:
            supervisor = self._supervisors[voice.worker]
            return await supervisor.wait_for_worker(self.limits.worker_wait_s)
        return min(running, key=lambda worker: worker.rows_used)

    def _alike(self, voice: Voice) -> list[Supervisor]:
        """The voice's worker, and those with the same model."""
        first = self._supervisors[voice.worker]
        if first.group is None:
            return [first]
        return [each for each in self._supervisors.values() if each.group == first.group]

    def _followers(
        self, options: ContextOptions, capabilities: Capabilities
    ) -> "list[Follower] | None":
        """Who finds the times of a context's words; None where its engine tells them."""
        if self._is_native(capabilities):
            return None
        return self._aligners.followers() if options.wants_words else []

    def _is_native(self, capabilities: Capabilities) -> bool:
        return capabilities.has_native_words and self._aligners.uses_native_words

    async def prepare(self, options: ContextOptions) -> None:
        """Let workers do ahead what a context with these options needs for its first audio."""
        voice, language, capabilities = self._resolve(options)
        feeding = options.text_feeding or capabilities.text_feeding[0]
        for alike in self._alike(voice):
            if alike.worker is not None:
                alike.worker.send(Prepare(voice.name, language, feeding, options.speech))

    def _resolve(self, options: ContextOptions) -> tuple[Voice, str | None, Capabilities]:
        voice = self.voices.resolve(options.voice)
        capabilities = self._supervisors[voice.worker].capabilities
        language = None if options.language is None else normalize_language(options.language)
        if language is not None and language not in capabilities.languages:
            language = language.partition("-")[0]
            if language not in capabilities.languages:
                raise InvalidRequestError(
                    f"voice {voice.name!r} speaks {', '.join(capabilities.languages)}; "
                    f"got language {language!r}",
                    code=ErrorCode.INVALID_LANGUAGE,
                )
        if options.text_feeding not in (None, *capabilities.text_feeding):
            raise InvalidRequestError(
                f"the engine of voice {voice.name!r} takes text by "
                f"{' or '.join(capabilities.text_feeding)}; got {options.text_feeding!r}",
                code=ErrorCode.INVALID_PARAM,
            )
        return voice, language, capabilities

    def _hear(self) -> None:
        self.heard_at = time.monotonic()

    def _forget(self, context: "Context", report: ContextReport) -> None:
        self._contexts.discard(context)
        if not context.options.is_probe:
            self._observe(report)


class Context:
    """One agent turn: text in; audio and words out, in order; cancelled at any time.

    Everything here runs on the event loop and returns at once. Use `next_event` with `on_event`, or
    iterate; after each audio chunk that has left, say so with `sent`.
    """

    def __init__(
        self,
        worker: WorkerClient,
        options: ContextOptions,
        voice: Voice,
        language: str | None,
        limits: Limits,
        followers: Sequence[Follower] | None,
        on_event: Callable[[], None] | None,
    ) -> None:
        self.voice = voice
        self.language = language
        self.on_audio: Callable[[], None] = lambda: None
        self.on_end: Callable[[Context, ContextReport], None] | None = None
        self.options = options
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()
        self._on_event = on_event or self._wake.set

        capabilities = worker.capabilities
        self._feeding: Feeding = options.text_feeding or capabilities.text_feeding[0]
        self._timeline = Timeline(
            1.0 if capabilities.has_native_speed else options.speech.speed,
            [Source.NATIVE] if followers is None else [f.source for f in followers],
        )
        self._has_native_words = followers is None
        self._followers = followers or []
        for follower in self._followers:
            follower.on_answer = self._on_aligner
        self._is_followed = False
        self._expected: list[Word] = []  # words that the aligners have not been told of

        self._deltas: list[str] = []
        self._chars = 0
        self._segmenter = Segmenter(language=language)
        self._segment_language = language
        self._submitted_char_end = 0
        self._spoken_char_end = 0
        self._flushes: deque[tuple[int, int]] = deque()  # (flush_id, the char_end it waits for)
        self._spoken_flushes: deque[tuple[int, ContextFlushed]] = deque()  # words are missing
        self._is_finished = False  # no more text will come
        self._end_reason: DoneReason = "complete"

        self._words: list[WordTimestamp] = []
        self._unsent_words: list[WordTimestamp] = []
        self._received_samples = 0
        self._granted_samples = 0
        self._clock = PlayoutClock()
        self._queue: deque[ContextEvent | _End] = deque()
        self._is_row_free = False
        self._is_made = False  # all of the audio is there
        self._is_complete = False  # all of the text was spoken
        self._is_cancelled = False  # only the end may still leave
        self._is_over = False  # `ContextDone` was taken
        self._first_text_at: float | None = None
        self._ttfa_s: float | None = None

        self._worker = worker
        self._number = worker.attach(self._on_worker_event)
        self._is_submitted = False
        self._arm("idle", limits.context_idle_s, self._on_idle)

    def prepare(self) -> None:
        """Let the worker do now what would delay the first audio when text comes."""
        # Where the language follows from the text, so does what the text's prompt begins with.
        if self.language is not None or self._feeding == "token":
            command = Prepare(self.voice.name, self.language, self._feeding, self.options.speech)
            self._worker.send(command)

    # Text in.

    def push_text(self, delta: str) -> None:
        """Append `delta`, verbatim, to the context's text.

        Raises:
            InvalidRequestError: the context takes no more text (`context_closed`), or more text is
                waiting than `max_text_chars` (`text_too_long`); nothing of `delta` was taken.
        """
        self._refuse_if_finished()
        waiting = self._chars - self._spoken_char_end + len(delta)
        if waiting > self._limits.max_text_chars:
            raise InvalidRequestError(
                f"expected at most {self._limits.max_text_chars} characters waiting to be spoken, "
                f"got {waiting}; send the rest when audio has come",
                code=ErrorCode.TEXT_TOO_LONG,
            )
        if not delta:
            return
        if self._first_text_at is None:
            self._first_text_at = time.monotonic()
        self._deltas.append(delta)
        self._chars += len(delta)
        self._arm("idle", self._limits.context_idle_s, self._on_idle)
        if self._feeding == "token":
            self._submit_one(Segment(delta, self._submitted_char_end), is_more=True)
            return
        segments = self._segmenter.push(delta)
        self._submit(segments)
        if segments:
            self._disarm("release")  # the oldest character that waits is a new one
        self._arm_segmenter()

    def flush(self, flush_id: int) -> None:
        """Speak what there is; `ContextFlushed(flush_id)` comes when it has been made.

        Raises:
            InvalidRequestError: the context takes no more text (`context_closed`).
        """
        self._refuse_if_finished()
        if self._feeding == "token" and self._is_submitted:
            self._worker.send(Flush(self._number))
            self._expect("", is_whole=True)
        self._submit(self._segmenter.flush())
        self._flushes.append((flush_id, self._submitted_char_end))
        self._answer_flushes()
        self._arm_segmenter()

    def finish(self) -> None:
        """No more text is coming; idempotent."""
        if self._is_finished:
            return
        self._is_finished = True
        self._expect("", is_whole=True)
        self._disarm("settle", "release", "idle")
        self._submit(self._segmenter.finish(), is_last=True)

    def cancel(self, played_samples: int | None = None) -> Cut | None:
        """Stop now and free the row; what is queued is dropped.

        Args:
            played_samples: how much of this context left the speaker, gaps excluded; None to go by
                the playout clock.

        Returns:
            What was heard, or None where `ContextDone` has been taken already.
        """
        if self._is_over:
            return None
        basis: Literal["played_ms", "clock"] = "clock" if played_samples is None else "played_ms"
        cut = self.cut(played_samples)
        self._is_cancelled = True
        self._drop_queue()
        self._put(ContextCancelled(cut, self._clock.sent_samples, basis))
        self._end("cancelled")
        return cut

    def abandon(self) -> None:
        """Cancel for a listener who is gone: nobody takes what is left; idempotent."""
        if not self._is_over:
            self.cancel()
            self._close("cancelled")

    def cut(self, played_samples: int | None = None) -> Cut:
        """What the listener heard; also after the end. Arguments as for `cancel`."""
        now = time.monotonic()
        heard = self._clock.played_samples(now) if played_samples is None else played_samples
        heard = max(0, min(heard, self._clock.sent_samples))
        return cut_text("".join(self._deltas), self._words, heard, is_final=self._is_complete)

    # Events out.

    def next_event(self) -> ContextEvent | None:
        """The next event, or None where there is none yet; words come before all else."""
        if self.has_words_next:
            words, self._unsent_words = self._unsent_words, []
            return ContextWords(tuple(words))
        if not self._queue:
            return None
        event = self._queue.popleft()
        return self._close(event.reason) if isinstance(event, _End) else event

    @property
    def has_words_next(self) -> bool:
        """Whether `next_event` would return words."""
        return bool(self._unsent_words)

    @property
    def has_audio_next(self) -> bool:
        """Whether `next_event` would return audio."""
        is_audio = bool(self._queue) and isinstance(self._queue[0], AudioChunk)
        return is_audio and not self.has_words_next

    def sent(self, samples: int) -> None:
        """`samples` of this context's audio have just left for the listener."""
        now = time.monotonic()
        if self._ttfa_s is None and self._first_text_at is not None:
            self._ttfa_s = now - self._first_text_at
        self._clock.send(samples, now)
        self._pace()
        self._arm_words()

    async def __aiter__(self) -> AsyncIterator[ContextEvent]:
        """Every event up to and including `ContextDone`; audio counts as sent when it is taken."""
        while True:
            self._wake.clear()
            while (event := self.next_event()) is not None:
                if isinstance(event, AudioChunk):
                    self.sent(event.samples)
                yield event
                if isinstance(event, ContextDone):
                    return
            await self._wake.wait()

    # Segments to the worker.

    def _submit(self, segments: list[Segment], *, is_last: bool = False) -> None:
        for index, segment in enumerate(segments):
            is_more = not (is_last and index == len(segments) - 1)
            self._submit_one(segment, is_more)
        if is_last and not segments:
            if not self._is_submitted:  # nothing was ever said
                self._is_complete = True
                self._end(self._end_reason)
            else:
                end = Append(self._number, "", self._submitted_char_end, False, None)
                self._worker.send(end)

    def _submit_one(self, segment: Segment, is_more: bool) -> None:
        self._expect(segment.text, is_whole=self._feeding == "segment")
        if self.language is None and self._feeding == "segment":
            self._segment_language = detect_language(segment.text, self._segment_language)
        language = self._segment_language
        place = (self._number, segment.text, segment.char_start, is_more)
        if self._is_submitted:
            self._worker.send(Append(*place, language))
        else:
            self._is_submitted = True
            speech = self.options.speech
            self._worker.send(Submit(*place, self.voice.name, language, self._feeding, speech))
            self._pace()
        self._submitted_char_end = segment.char_end

    def _arm_segmenter(self) -> None:
        """Start the two clocks of buffered text: silence of the client, and patience."""
        if not self._segmenter.pending:
            self._disarm("settle", "release")
            return
        if self._segmenter.ends_sentence:
            self._arm("settle", self._limits.settle_s, self._on_settle)
        else:
            self._disarm("settle")
        if "release" not in self._timers:
            delay_s = self.options.max_buffer_delay_ms / 1000
            self._arm("release", delay_s, self._on_release)

    def _on_settle(self) -> None:
        self._submit(self._segmenter.settle())
        if not self._segmenter.pending:
            self._disarm("release")

    def _on_release(self) -> None:
        self._submit(self._segmenter.release())
        if self._segmenter.pending:
            delay_s = max(0.05, self.options.max_buffer_delay_ms / 1000)
            self._arm("release", delay_s, self._on_release)

    def _on_idle(self) -> None:
        self._end_reason = "idle"
        self.finish()

    # Credit to the worker.

    def _pace(self) -> None:
        """Grant the row as much as its listener's position allows, in steps worth a message."""
        if self._is_row_free or not self._is_submitted:
            return
        now = time.monotonic()
        max_lead_s = self.options.max_lead_s
        is_paced = max_lead_s != 0
        wanted = self._clock.sent_samples + round(self._limits.max_unsent_s * SAMPLE_RATE_HZ)
        step_s = _LONGEST_STEP_S
        if is_paced:
            lead_s = max(self._limits.max_lead_s if max_lead_s is None else max_lead_s, _MIN_LEAD_S)
            played = self._clock.played_samples(now)
            wanted = min(wanted, played + round(lead_s * SAMPLE_RATE_HZ))
            step_s = min(step_s, lead_s / 4)
        if wanted - self._granted_samples >= step_s * SAMPLE_RATE_HZ:
            self._granted_samples = wanted
            playout_end = max(self._clock.playout_end, now)
            samples_wanted = self._timeline.to_engine(wanted)
            self._worker.send(Credit(self._number, playout_end, samples_wanted))
        if is_paced and self._clock.lead_s(now) > 0 and "pace" not in self._timers:
            self._arm("pace", step_s, self._pace)

    # Events from the worker.

    def _on_worker_event(self, event: Event | AlignEvent) -> None:
        match event:
            case AudioStep((row,)):
                audio = self._timeline.audio(row.chunk)
                self._take_words()  # ahead of their sound
                self._hear(audio)
                self._let_listen(row.chunk)
                if self._received_samples > self._limits.max_audio_s * SAMPLE_RATE_HZ:
                    self._stop_following()
                    self._end("limit")
            case Words(_, words) if self._has_native_words:
                self._timeline.tell(Source.NATIVE, words)
                self._take_words()
            case SegmentEnd(_, char_end, end_sample):
                self._timeline.end_segment(char_end, end_sample)
                self._end_segment(char_end)
                if self._is_followed:
                    for follower in self._followers:
                        follower.end_segment(char_end, end_sample)
                self._arm_words()
            case Done():
                self._hear(self._timeline.finish())
                self._end_segment(self._chars)
                self._is_row_free = self._is_made = True
                self._finish_words()
            case Failed(_, code, message, retry_after_ms):
                kind = _ERRORS.get(code, EngineError)
                error = kind(message, code=code, retry_after_ms=retry_after_ms)
                self._stop_following()
                self._put(ContextFailed(error))
                self._end("error")
            case _:
                pass

    def _hear(self, audio: AudioChunk | None) -> None:
        if audio is not None:
            self._received_samples = audio.end_sample
            self._put(audio)
            self.on_audio()

    def _end_segment(self, char_end: int) -> None:
        """The audio of the text up to `char_end` is there."""
        self._spoken_char_end = max(self._spoken_char_end, char_end)
        self._answer_flushes()

    def _answer_flushes(self) -> None:
        """Answer those whose text has been spoken and whose words have left."""
        while self._flushes and self._flushes[0][1] <= self._spoken_char_end:
            flush_id, char_end = self._flushes.popleft()
            answer = ContextFlushed(flush_id, self._received_samples)
            self._spoken_flushes.append((char_end, answer))
        next_char = self._timeline.next_char
        while self._spoken_flushes:
            char_end, answer = self._spoken_flushes[0]
            if next_char is not None and next_char < char_end:
                return
            self._spoken_flushes.popleft()
            self._put(answer)

    # Words.

    def _expect(self, text: str, *, is_whole: bool) -> None:
        """`text`, which follows what was expected before, will be spoken."""
        words = self._timeline.expect(text, is_whole=is_whole)
        if self._is_followed:
            for follower in self._followers:
                follower.expect(words)
        elif self._followers:
            self._expected += words

    def _let_listen(self, chunk: AudioChunk) -> None:
        """Let the aligners hear what the listener will; the first sound begins it."""
        if not self._is_followed and self._followers:
            self._is_followed = True
            language = self._segment_language or detect_language("".join(self._deltas), None)
            for follower in self._followers:
                follower.follow(language, self.voice.name, self._expected)
        for follower in self._followers:
            follower.listen(chunk)

    def _on_aligner(self, source: Source, event: AlignEvent) -> None:
        match event:
            case Aligned(_, words, outlook):
                self._timeline.tell(source, words)
                if source is Source.ONLINE:
                    self._timeline.expect_at(outlook)
            case _:
                self._timeline.lose(source)
        self._take_words()

    def _finish_words(self) -> None:
        """All audio is there: ask for the words that are missing, but not for ever."""
        if self._is_followed:
            for follower in self._followers:
                follower.finish()
            self._arm("words_wait", _WORDS_WAIT_S, self._stop_following)
            self._take_words()
        else:
            self._stop_following()

    def _stop_following(self) -> None:
        """Go without the aligners: what they have found leaves, and no better time is awaited."""
        for follower in self._followers:
            follower.close()
            self._timeline.lose(follower.source)
        self._take_words()

    def _take_words(self) -> None:
        """Send the words that must leave now, and what waited for them."""
        if self._is_cancelled or self._is_over:
            return  # audio that was on its way has left and set the clock again
        words = self._timeline.take(self._clock, time.monotonic())
        if words:
            self._words += words
            self._unsent_words += words
            self._on_event()
        self._answer_flushes()
        if not self._is_made or self._timeline.next_char is not None:
            self._arm_words()
        elif not self._timeline.awaits_answers:
            self._complete()
        elif "refining_wait" not in self._timers:
            self._arm("refining_wait", _REFINING_WAIT_S, self._stop_following)

    def _arm_words(self) -> None:
        """Wake up when the next word must leave, even if nothing happens until then."""
        due = self._timeline.next_take_at(self._clock)
        if due is not None:
            self._arm("words", max(0.0, due - time.monotonic()), self._take_words)

    def _complete(self) -> None:
        """All audio and all words are out."""
        self._words = keep_inside(self._words, self._received_samples)
        self._is_complete = True
        self._end(self._end_reason)

    # The end.

    def _end(self, reason: DoneReason) -> None:
        """Free the row, take no more text, and let `ContextDone` follow what is queued."""
        self._is_finished = True
        self._disarm(*self._timers)
        for follower in self._followers:
            follower.close()
        if not self._is_row_free:
            self._is_row_free = True
            self._worker.detach(self._number, needs_cancel=self._is_submitted)
        self._put(_End(reason))

    def _close(self, reason: DoneReason) -> ContextDone:
        self._is_over = True
        self._drop_queue()
        refined = self._timeline.refined() if self._is_complete else None
        done = ContextDone(reason, self._report(reason), refined)
        if self.on_end is not None:
            self.on_end(self, done.report)
        return done

    def _report(self, reason: DoneReason) -> ContextReport:
        now = time.monotonic()
        discarded_samples = 0
        if reason == "cancelled":
            discarded_samples = self._received_samples - self._clock.played_samples(now)
        return ContextReport(
            reason=reason,
            chars=self._chars,
            audio_samples=self._received_samples,
            discarded_samples=discarded_samples,
            ttfa_s=self._ttfa_s,
            gen_s=0.0 if self._first_text_at is None else now - self._first_text_at,
            underrun_s=self._clock.underrun_s,
            words=self._timeline.figures,
            aligner_lag_s={follower.source: follower.worst_lag_s for follower in self._followers},
        )

    def _drop_queue(self) -> None:
        self._queue.clear()
        self._unsent_words.clear()

    def _put(self, event: "ContextEvent | _End") -> None:
        self._queue.append(event)
        self._on_event()

    def _refuse_if_finished(self) -> None:
        if self._is_finished:
            raise InvalidRequestError(
                "this context takes no more text: it was ended, cancelled, or has failed",
                code=ErrorCode.CONTEXT_CLOSED,
            )

    def _arm(self, name: str, delay_s: float, callback: Callable[[], None]) -> None:
        self._disarm(name)
        self._timers[name] = self._loop.call_later(delay_s, self._fire, name, callback)

    def _fire(self, name: str, callback: Callable[[], None]) -> None:
        del self._timers[name]
        callback()

    def _disarm(self, *names: str) -> None:
        for name in names:
            if timer := self._timers.pop(name, None):
                timer.cancel()


@dataclass(frozen=True, slots=True)
class _End:
    """Holds the place of `ContextDone`, whose report is true only when it is taken."""

    reason: DoneReason


_ERRORS: dict[ErrorCode, type[VoiceAgentError]] = {
    ErrorCode.INVALID_VOICE: InvalidRequestError,
    ErrorCode.INVALID_LANGUAGE: InvalidRequestError,
    ErrorCode.INVALID_PARAM: InvalidRequestError,
    ErrorCode.OVERLOADED: OverloadedError,
}
"""Errors of an engine that are not its own fault."""
