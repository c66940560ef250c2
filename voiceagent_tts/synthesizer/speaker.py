"""Speaks the pieces of a context from the cache or with its engine, on one clock.

The engine's worker receives the pieces that are not cached, and counts its samples as if there
were no others; `Speaker` moves its events to the place that they have in the context. Text behind
a cached phrase goes to the worker when that phrase's audio has left here, and a cached phrase
behind live text waits for the end of that text's audio. So at any time either the worker speaks or
a phrase does, and all audio comes in the order of the text. `Pacer` says how far both may run ahead
of playback.
"""

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import itemgetter

from voiceagent_tts.cache.phrases import Lookup, Phrase, Recorder
from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    FRAME_SAMPLES,
    SAMPLE_RATE_HZ,
    AudioChunk,
    PlayoutClock,
    WordTimestamp,
)
from voiceagent_tts.seam.aligner_messages import AlignEvent
from voiceagent_tts.seam.commands import Append, Credit, Flush, Submit
from voiceagent_tts.seam.events import AudioStep, Done, Event, Failed, SegmentEnd, Warned, Words
from voiceagent_tts.synthesizer.options import ContextRequest, Limits
from voiceagent_tts.synthesizer.segments import Piece
from voiceagent_tts.synthesizer.workers import EventHandler, Row, WorkerClient

_FIRST_CHUNK_SAMPLES = FRAME_SAMPLES  # small, so that it is marked, encoded and sent at once
_CHUNK_SAMPLES = SAMPLE_RATE_HZ

_MIN_LEAD_S = 0.2
"""Minimum lead: a shorter one is used up by timers and the delay of the resampler."""
_LONGEST_STEP_S = 0.5

_LIVE = Lookup(None)


@dataclass(frozen=True, slots=True)
class SpokenAudio:
    """The next audio of the context.

    Args:
        chunk: the audio, on the context's clock.
        engine_chunk: the same audio on the engine's clock; None for audio from the cache.
    """

    chunk: AudioChunk
    engine_chunk: AudioChunk | None = None


@dataclass(frozen=True, slots=True)
class SpokenWords:
    """Exact times of words, on the context's clock.

    Args:
        words: the words with their times.
        is_cached: whether they are those of a cached phrase, sent before its audio.
    """

    words: tuple[WordTimestamp, ...]
    is_cached: bool = False


@dataclass(frozen=True, slots=True)
class SpokenSegment:
    """The text before `char_end` is spoken.

    Args:
        char_end: end of the segment in the context's text.
        end_sample: end of its audio, on the context's clock.
        engine_end_sample: end of the engine's audio so far, on the engine's clock.
    """

    char_end: int
    end_sample: int
    engine_end_sample: int


SpeakerEvent = SpokenAudio | SpokenWords | SpokenSegment | Warned | Done | Failed


@dataclass(slots=True)
class _Waiting:
    """A piece that waits for the audio of those before.

    Attributes:
        phrase: its audio; None where the engine speaks it.
        is_flushed: whether the engine speaks the text up to here as if it had ended.
        sent_samples: audio of the phrase that has left here; None before its words.
    """

    piece: Piece
    phrase: Phrase | None
    is_flushed: bool = False
    sent_samples: int | None = None


class Speaker:
    """Speaks the pieces of one context.

    What it has to say comes from `receive` for the events of the worker, and from `advance` for
    cached phrases.

    Args:
        worker: the engine worker, whose row the context reserves.
        request: the resolved options of the context.
        on_event: receives the events of the worker, to be passed to `receive`.
        on_free: called once the worker has freed the row of the context; None if nobody asks.

    Attributes:
        cached_segments: segments that came from the cache.
        is_speaking: whether there is text of the context, and its row is held.
        voice: the voice that speaks; final once there is a piece.

    Raises:
        EngineError: the worker has ended.
    """

    def __init__(
        self,
        worker: WorkerClient,
        request: ContextRequest,
        on_event: EventHandler,
        on_free: Callable[[], None] | None = None,
    ) -> None:
        self.cached_segments = 0
        self._on_event = on_event
        self._on_free = on_free
        self._use(worker, request)
        self._submitted_at: float | None = None
        self._first_audio_at: float | None = None
        self._waiting: deque[_Waiting] = deque()
        self._live_char_end = self._ended_char_end = 0
        """Ends of the text that the worker has received, and of the text that it has spoken."""
        self._cached_samples = 0
        """Audio of phrases so far: the distance between the worker's clock and the context's."""
        self._cached_before: list[tuple[int, int]] = []
        """Ends of phrases in the text, and `_cached_samples` at each."""
        self._end_sample = 0
        self._playout_end = 0.0
        self._samples_wanted = 0
        self._is_credit_stale = False
        """Whether a phrase has used a part of the credit that the worker has."""
        self._has_sound = self._begins_cached = self._has_text = self.is_speaking = False
        self._text_end: int | None = None
        """End of the text, once it is known and the worker has not been told."""
        self._is_released = False

    @property
    def model(self) -> str:
        """Name of the model that speaks the context."""
        return self._row.worker.capabilities.model

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes that the voice speaks which speaks the context; empty if it has its own."""
        return self._request.languages

    @property
    def submitted_at(self) -> float | None:
        """`time.monotonic()` of the first text sent; None if the context begins with a phrase."""
        return None if self._begins_cached else self._submitted_at

    @property
    def first_audio_at(self) -> float | None:
        """`time.monotonic()` of the engine's first audio; None as `submitted_at`."""
        return None if self._begins_cached else self._first_audio_at

    @property
    def stored_segments(self) -> int:
        """Segments whose audio was stored in the cache."""
        return 0 if self._phrases is None else self._phrases.stored

    # Text in.

    def prepare(self) -> None:
        """Ask the worker to compute ahead what would delay the first audio."""
        request = self._request
        # The prompt begins with the language; segments without one take it from their text.
        if request.language is not None or request.feeding == "token":
            self._row.worker.send(request.preparation)

    def place(self, language: str) -> None:
        """Move to a worker that speaks the language of the first piece, if there is one.

        Without effect once there is text.
        """
        find = None if self._has_text else self._request.place
        if find is not None and (found := find(language)) is not None:
            left = self._row
            self._use(*found)
            left.release()

    def speak(self, piece: Piece) -> bool:
        """Speak the next piece.

        Returns:
            Whether the engine speaks it, and not the cache.
        """
        piece = replace(piece, language=self._readable(piece.language))
        self._has_text, self.is_speaking = True, not self._is_released
        lookup = self._look_up(piece)
        self._has_sound = self._has_sound or piece.is_live or lookup.key is not None
        if lookup.phrase is None:
            if self.recorder is not None:
                self.recorder.expect(piece.segment, lookup)
        elif lookup.key is not None:
            self.cached_segments += 1
        item = _Waiting(piece, lookup.phrase)
        if lookup.phrase is None and not self._waiting:
            self._submit(item)
        else:
            self._waiting.append(item)
        return lookup.phrase is None

    def end_text(self, char_end: int) -> None:
        """Report that no text follows the text before `char_end`."""
        if self.recorder is not None and self._phrases is not None and self._phrases.has_pauses:
            self.recorder.distrust()  # the engine may leave out the pause after the last segment
        self._text_end = char_end

    def flush(self) -> None:
        """Make the engine speak all text so far as if it had ended."""
        if self._waiting:
            self._waiting[-1].is_flushed = True
        else:
            self._row.send(Flush(self._row.number))

    def grant(self, playout_end: float, samples_wanted: int) -> None:
        """Give credit on the context's clock; arguments as for `Credit`."""
        self._playout_end, self._samples_wanted = playout_end, samples_wanted
        self._grant_engine()

    def release(self) -> None:
        """Release the row and have nothing more to say; idempotent."""
        self._is_released, self.is_speaking = True, False
        self._waiting.clear()
        self._row.release()

    def _use(self, worker: WorkerClient, request: ContextRequest) -> None:
        """Speak with a worker; reserves its row."""
        self.voice = request.voice
        self._request = request
        self._row = Row(worker, self._on_event, on_free=self._on_free and self._note_free)
        self._phrases = request.phrases
        self.recorder: Recorder | None = None
        if self._phrases is not None and request.feeding == "segment":
            self.recorder = Recorder(self._phrases)

    def _note_free(self, row: Row) -> None:
        """Report that the context occupies no row any more, unless it has moved to another one."""
        if row is self._row and self._on_free is not None:
            self._on_free()

    def _readable(self, language: str | None) -> str | None:
        """The language, or None, for the engine to choose, if the voice does not speak it."""
        if language is None or not self.languages:
            return language
        spoken = {each.partition("-")[0] for each in self.languages}
        return language if language.partition("-")[0] in spoken else None

    def _look_up(self, piece: Piece) -> Lookup:
        if self._phrases is None or piece.is_live:
            return _LIVE
        is_first = not self._has_sound
        return self._phrases.find(
            piece.segment, piece.language, is_first=is_first, is_last=piece.is_last
        )

    def _submit(self, item: _Waiting) -> None:
        """Send a piece to the worker, with the credit that is left of the context's."""
        is_first = not self._row.is_active
        if self._is_credit_stale:
            self._grant_engine()  # before the text, which would be spoken with the credit of before
        self._live_char_end = item.piece.segment.char_end
        self._send_text(item.piece)
        if item.is_flushed:
            self._row.send(Flush(self._row.number))
        if is_first:
            self._grant_engine()

    def _send_text(self, piece: Piece) -> None:
        """Send a piece; the first one starts the row."""
        segment, row, request = piece.segment, self._row, self._request
        place = (row.number, segment.text, segment.char_start, not piece.is_last)
        if row.is_active:
            row.send(Append(*place, piece.language, segment.readings))
            return
        if self._submitted_at is None:
            self._submitted_at = time.monotonic()
        # Cached audio has already played: the engine's leading silence is then a pause.
        continues = self._cached_samples > 0
        speech = replace(request.speech, keeps_silence=True) if continues else request.speech
        voice = request.voice
        how = (voice.engine_name, piece.language, request.feeding, speech)
        traceparent = request.options.traceparent
        row.start(Submit(*place, *how, segment.readings, traceparent, continues, voice.version))

    def _grant_engine(self) -> None:
        """Give the worker what phrases have left of the context's credit."""
        wanted = self._samples_wanted - self._cached_samples
        if wanted > 0 or self._is_credit_stale:
            self._row.send(Credit(self._row.number, self._playout_end, wanted))
        self._is_credit_stale = False

    # Audio out.

    def advance(self) -> Iterator[SpeakerEvent]:
        """Speak what waits as far as the credit allows; each event is handled before the next."""
        while self._waiting:
            item = self._waiting[0]
            if item.phrase is None:
                self._waiting.popleft()
                self._submit(item)
                continue
            if self._ended_char_end < self._live_char_end:
                return  # the worker still speaks
            yield from self._play(item, item.phrase)
            if self._is_released or item.sent_samples != item.phrase.samples:
                return
            self._waiting.popleft()
            if item.piece.is_last:
                self._text_end = item.piece.segment.char_end
        if self._text_end is not None and not self._is_released:
            yield from self._end_text(self._text_end)

    def _play(self, item: _Waiting, phrase: Phrase) -> Iterator[SpeakerEvent]:
        """Speak a phrase as far as the credit allows."""
        segment = item.piece.segment
        if item.sent_samples is None:
            item.sent_samples = 0
            self._begins_cached = self._begins_cached or not self._end_sample
            if words := phrase.place(segment, self._end_sample):
                yield SpokenWords(words, is_cached=True)
        while item.sent_samples < phrase.samples and not self._is_released:
            limit = _CHUNK_SAMPLES if self._end_sample else _FIRST_CHUNK_SAMPLES
            samples = min(limit, self._samples_wanted - self._end_sample)
            if samples <= 0:
                return
            start = item.sent_samples * BYTES_PER_SAMPLE
            pcm = phrase.pcm[start : start + samples * BYTES_PER_SAMPLE]
            chunk = AudioChunk(self._end_sample, pcm)
            item.sent_samples += chunk.samples
            self._cached_samples += chunk.samples
            self._playout_end += chunk.samples / SAMPLE_RATE_HZ
            self._is_credit_stale = True
            self._end_sample = chunk.end_sample
            yield SpokenAudio(chunk)
        if self._cached_samples:
            self._cached_before.append((segment.char_end, self._cached_samples))
        if not self._is_released:
            engine_end_sample = self._end_sample - self._cached_samples
            yield SpokenSegment(segment.char_end, self._end_sample, engine_end_sample)

    def _end_text(self, char_end: int) -> Iterator[Done]:
        self._text_end = None
        if self._row.is_active:
            self._row.send(Append(self._row.number, "", char_end, False, None))
        else:  # the worker does not know this context
            yield Done(0, self._end_sample)

    def receive(self, event: Event | AlignEvent) -> SpeakerEvent | None:
        """Move an event of the worker to its place in the context; None for one without."""
        match event:
            case AudioStep((audio,)):
                return self._move_audio(audio.chunk)
            case Words(_, words):
                if self._cached_samples:
                    words = tuple(word.later(self._cached_samples) for word in words)
                return SpokenWords(words)
            case SegmentEnd(_, char_end, end_sample):
                self._ended_char_end = max(self._ended_char_end, char_end)
                if self.recorder is not None:
                    self.recorder.end_segment(char_end)
                return SpokenSegment(char_end, end_sample + self._cached_samples, end_sample)
            case Warned() | Failed():
                if self.recorder is not None:
                    self.recorder.distrust()
                return event
            case Done():
                return event
            case _:
                return None

    def _move_audio(self, engine_chunk: AudioChunk) -> SpokenAudio:
        if self._first_audio_at is None:
            self._first_audio_at = time.monotonic()
        chunk = engine_chunk
        if self._cached_samples:
            start_sample = engine_chunk.start_sample + self._cached_samples
            chunk = replace(engine_chunk, start_sample=start_sample)
        self._end_sample = chunk.end_sample
        if self.recorder is not None:
            self.recorder.push_audio(chunk)
        return SpokenAudio(chunk, engine_chunk)

    def placed(self, words: tuple[WordTimestamp, ...]) -> tuple[WordTimestamp, ...]:
        """Move words on the engine's clock behind the cached phrases that precede them."""
        if not self._cached_before:
            return words
        return tuple(word.later(self._cached_until(word.word.char_start)) for word in words)

    def _cached_until(self, char_start: int) -> int:
        place = bisect_right(self._cached_before, char_start, key=itemgetter(0))
        return self._cached_before[place - 1][1] if place else 0


class Pacer:
    """Computes how far a context's audio may run ahead of playback.

    Credit grows in steps that are large enough to be worth a message.

    Args:
        clock: the context's playback.
        max_lead_s: longest lead of generation over playback; None for the server's limit, 0 for no
            pacing.
        limits: the server's limits; the one of unsent audio also holds without pacing.

    Attributes:
        due_at: when playback allows more without other events; None if only audio sent does.
    """

    def __init__(self, clock: PlayoutClock, max_lead_s: float | None, limits: Limits) -> None:
        self.due_at: float | None = None
        self._clock = clock
        self._max_unsent_s = limits.max_unsent_s
        self._is_paced = max_lead_s != 0
        self._lead_s = max(limits.max_lead_s if max_lead_s is None else max_lead_s, _MIN_LEAD_S)
        self._step_s = _LONGEST_STEP_S
        if self._is_paced:
            self._step_s = min(_LONGEST_STEP_S, self._lead_s / 4)
        self._granted_samples = 0

    def more_samples(self, now: float) -> int | None:
        """Return how many samples the listener may get in all; None if that is no step more."""
        if self.due_at is not None and self.due_at <= now:
            self.due_at = None
        if self._is_paced and self.due_at is None and self._clock.lead_s(now) > 0:
            self.due_at = now + self._step_s
        wanted = self._wanted_samples(now)
        if wanted - self._granted_samples < self._step_s * SAMPLE_RATE_HZ:
            return None
        self._granted_samples = wanted
        return wanted

    def _wanted_samples(self, now: float) -> int:
        by_memory = self._clock.sent_samples + round(self._max_unsent_s * SAMPLE_RATE_HZ)
        if not self._is_paced:
            return by_memory
        by_playback = self._clock.played_samples(now) + round(self._lead_s * SAMPLE_RATE_HZ)
        return min(by_memory, by_playback)
