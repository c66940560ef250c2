"""Where the audio of a context's segments comes from: the cache or the engine, on one clock.

The engine's worker receives the segments that are not cached, and counts its samples as if there
were no others; this module moves its events to the place that they have in the context. Text behind
a cached phrase goes to the worker when that phrase's audio has left here, and a cached phrase
behind live text waits for the end of that text's audio. So at any time either the worker speaks or
a phrase does, and all audio comes in the order of the text.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from voiceagent_tts.cache.context_phrases import Lookup
from voiceagent_tts.cache.phrase import Phrase
from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    FRAME_SAMPLES,
    SAMPLE_RATE_HZ,
    AudioChunk,
    Segment,
    WordTimestamp,
)
from voiceagent_tts.seam.aligner_messages import AlignEvent
from voiceagent_tts.seam.events import (
    AudioStep,
    ContextAudio,
    Done,
    Event,
    Failed,
    SegmentEnd,
    Warned,
    Words,
)
from voiceagent_tts.synthesizer.engine_handle import EngineHandle
from voiceagent_tts.synthesizer.options import ContextRequest
from voiceagent_tts.synthesizer.recorder import KnownTimes, Recorder
from voiceagent_tts.synthesizer.timers import MakeTimer
from voiceagent_tts.synthesizer.worker_client import WorkerClient

_FIRST_CHUNK_SAMPLES = FRAME_SAMPLES  # small, so that it is marked, encoded and sent at once
_CHUNK_SAMPLES = SAMPLE_RATE_HZ

_LIVE = Lookup(None)


@dataclass(frozen=True, slots=True)
class StoredWords:
    """Times of the words of a cached phrase, sent before its audio."""

    words: tuple[WordTimestamp, ...]


@dataclass(frozen=True, slots=True)
class StoredAudio:
    """Audio of a cached phrase."""

    chunk: AudioChunk


SourceEvent = Event | AlignEvent | StoredWords | StoredAudio


@dataclass(slots=True)
class _Waiting:
    """A segment that waits for the audio of those before.

    Attributes:
        phrase: its audio; None where the engine speaks it.
        is_flushed: whether the engine speaks the text up to here as if it had ended.
        sent_samples: audio of the phrase that has left here; None before its words.
    """

    segment: Segment
    language: str | None
    is_last: bool
    phrase: Phrase | None
    is_flushed: bool = False
    sent_samples: int | None = None


class SegmentSource:
    """Speaks the segments of one context from the cache or through its engine worker.

    Args:
        worker: the engine worker, whose row the context reserves.
        request: the resolved options of the context.
        on_event: receives events on the context's clock; never during a call of this class.
        known_times: as for `Recorder`.
        make_timer: makes its timer.

    Attributes:
        cached_segments: segments that came from the cache.
        voice: the voice that speaks; final once there is a segment.

    Raises:
        EngineError: the worker has ended.
    """

    def __init__(
        self,
        worker: WorkerClient,
        request: ContextRequest,
        on_event: Callable[[SourceEvent], None],
        known_times: KnownTimes,
        make_timer: MakeTimer,
    ) -> None:
        self.cached_segments = 0
        self._on_event = on_event
        self._known_times = known_times
        self._use(worker, request)
        self._waiting: deque[_Waiting] = deque()
        self._live_char_end = self._ended_char_end = 0
        """Ends of the text that the worker has received, and of the text that it has spoken."""
        self._stored_samples = 0
        """Audio of phrases so far: the distance between the worker's clock and the context's."""
        self._end_sample = 0
        self._playout_end = 0.0
        self._samples_wanted = 0
        self._is_credit_stale = False
        """Whether a phrase has used a part of the credit that the worker has."""
        self._has_sound = self._begins_cached = False
        self._has_text = False
        self._text_end: int | None = None
        """End of the text, once it is known and the worker has not been told."""
        self._is_released = False
        self._pumping = make_timer(self._pump)

    @property
    def is_speaking(self) -> bool:
        """Whether there is text of the context, and its row is held."""
        return self._has_text and not self._is_released

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes that the voice speaks which speaks the context; empty if it has its own."""
        return self._request.languages

    # As of an `EngineHandle`.

    @property
    def submitted_at(self) -> float | None:
        """As of an `EngineHandle`; None for a context that begins with cached audio."""
        return None if self._begins_cached else self._engine.submitted_at

    @property
    def first_audio_at(self) -> float | None:
        """As of an `EngineHandle`; None for a context that begins with cached audio."""
        return None if self._begins_cached else self._engine.first_audio_at

    @property
    def stored_segments(self) -> int:
        """Segments whose audio was stored in the cache."""
        return 0 if self._phrases is None else self._phrases.stored

    def prepare(self) -> None:
        """Ask the worker to compute ahead what would delay the first audio."""
        self._engine.prepare()

    def place(self, language: str) -> None:
        """Move to a worker that speaks the language of the first segment, if there is one.

        Without effect once there is text.
        """
        find = None if self._has_text else self._request.place
        if find is not None and (found := find(language)) is not None:
            self._engine.release()
            self._use(*found)

    def speak(
        self, segment: Segment, language: str | None, *, is_last: bool, is_live: bool = False
    ) -> bool:
        """Speak the next segment.

        Args:
            segment: the segment, or a part of one that is fed as it is written.
            language: its language code; None if the engine chooses.
            is_last: whether no text follows.
            is_live: whether the engine speaks it in any case.

        Returns:
            Whether the engine speaks it, and not the cache.
        """
        language = self._readable(language)
        self._has_text = True
        lookup = _LIVE if is_live else self._look_up(segment, language, is_last=is_last)
        self._has_sound = self._has_sound or is_live or lookup.key is not None
        if lookup.phrase is None:
            if self._recorder is not None:
                self._recorder.expect(segment, lookup)
        elif lookup.key is not None:
            self.cached_segments += 1
        item = _Waiting(segment, language, is_last, lookup.phrase)
        if lookup.phrase is None and not self._waiting:
            self._submit(item)
        else:
            self._waiting.append(item)
            self._pump_soon()
        return lookup.phrase is None

    def end_text(self, char_end: int) -> None:
        """Report that no text follows the text before `char_end`."""
        if self._recorder is not None and self._phrases is not None and self._phrases.has_pauses:
            self._recorder.distrust()  # the engine may leave out the pause after the last segment
        self._text_end = char_end
        self._pump_soon()

    def flush(self) -> None:
        """Make the engine speak all text so far as if it had ended."""
        if self._waiting:
            self._waiting[-1].is_flushed = True
        elif self._engine.is_speaking:
            self._engine.flush()

    def grant(self, playout_end: float, samples_wanted: int) -> None:
        """Give credit on the context's clock; arguments as for `Credit`."""
        self._playout_end, self._samples_wanted = playout_end, samples_wanted
        self._grant_engine()
        if self._waiting:
            self._pump_soon()

    def release(self) -> None:
        """Release the row and send no more events; idempotent."""
        self._is_released = True
        self._waiting.clear()
        self._pumping.stop()
        self._engine.release()

    def store_known(self, *, is_final: bool = False) -> None:
        """Store the spoken segments whose words have all been timed."""
        if self._recorder is not None:
            self._recorder.store_known(is_final=is_final)

    # Segments in.

    def _use(self, worker: WorkerClient, request: ContextRequest) -> None:
        """Speak with a worker, whose row is reserved."""
        self.voice = request.voice
        self._request = request
        self._engine = EngineHandle(worker, request, self._on_engine_event)
        self._phrases = request.phrases
        self._recorder: Recorder | None = None
        if self._phrases is not None and request.feeding == "segment":
            self._recorder = Recorder(self._phrases, self._known_times)

    def _readable(self, language: str | None) -> str | None:
        """The language, or None, for the engine to choose, if the voice does not speak it."""
        code = (language or "").partition("-")[0]
        spoken = {each.partition("-")[0] for each in self.languages}
        return language if code in spoken or not spoken else None

    def _look_up(self, segment: Segment, language: str | None, *, is_last: bool) -> Lookup:
        if self._phrases is None:
            return _LIVE
        return self._phrases.find(segment, language, is_first=not self._has_sound, is_last=is_last)

    def _submit(self, item: _Waiting) -> None:
        """Send a segment to the worker, with the credit that is left of the context's."""
        is_first = not self._engine.is_speaking
        if self._is_credit_stale:
            self._grant_engine()  # before the text, which would be spoken with the credit of before
        self._live_char_end = item.segment.char_end
        self._engine.speak(
            item.segment,
            item.language,
            is_last=item.is_last,
            # What the engine takes for its first sound is none, and a pause belongs before it.
            continues=self._stored_samples > 0,
        )
        if item.is_flushed:
            self._engine.flush()
        if is_first:
            self._grant_engine()

    def _grant_engine(self) -> None:
        """Give the worker what phrases have left of the context's credit."""
        wanted = self._samples_wanted - self._stored_samples
        if self._engine.is_speaking and (wanted > 0 or self._is_credit_stale):
            self._engine.grant(self._playout_end, wanted)
        self._is_credit_stale = False

    # Audio out.

    def _pump_soon(self) -> None:
        """Go on with what waits, in the next turn of the event loop.

        An event in the middle of a call of the context would reach it in a state that the events
        of a worker never meet.
        """
        if not self._pumping.is_running and not self._is_released:
            self._pumping.start(0.0)

    def _pump(self) -> None:
        while self._waiting:
            item = self._waiting[0]
            if item.phrase is None:
                self._waiting.popleft()
                self._submit(item)
                continue
            if self._ended_char_end < self._live_char_end:
                return  # the worker still speaks
            if not self._send_phrase(item, item.phrase) or self._is_released:
                return
            self._waiting.popleft()
            if item.is_last:
                self._text_end = item.segment.char_end
        if not self._waiting and self._text_end is not None:
            self._end_text(self._text_end)

    def _send_phrase(self, item: _Waiting, phrase: Phrase) -> bool:
        """Send a phrase as far as the credit allows; return whether it is complete."""
        if item.sent_samples is None:
            item.sent_samples = 0
            self._begins_cached = self._begins_cached or not self._end_sample
            if words := phrase.place(item.segment, self._end_sample):
                self._on_event(StoredWords(words))
        while item.sent_samples < phrase.samples and not self._is_released:
            limit = _CHUNK_SAMPLES if self._end_sample else _FIRST_CHUNK_SAMPLES
            samples = min(limit, self._samples_wanted - self._end_sample)
            if samples <= 0:
                return False
            start = item.sent_samples * BYTES_PER_SAMPLE
            pcm = phrase.pcm[start : start + samples * BYTES_PER_SAMPLE]
            chunk = AudioChunk(self._end_sample, pcm)
            item.sent_samples += chunk.samples
            self._stored_samples += chunk.samples
            self._playout_end += chunk.samples / SAMPLE_RATE_HZ
            self._is_credit_stale = True
            self._end_sample = chunk.end_sample
            self._on_event(StoredAudio(chunk))
        if not self._is_released:
            self._on_event(SegmentEnd(0, item.segment.char_end, self._end_sample))
        return True

    def _end_text(self, char_end: int) -> None:
        self._text_end = None
        if self._engine.is_speaking:
            self._engine.end_text(char_end)
        else:  # the worker has not heard of this context
            self._on_event(Done(0, self._end_sample))

    def _on_engine_event(self, event: Event | AlignEvent) -> None:
        """Move an event of the worker to its place in the context."""
        later = self._stored_samples
        match event:
            case AudioStep((row,)):
                chunk = replace(row.chunk, start_sample=row.chunk.start_sample + later)
                self._end_sample = chunk.end_sample
                if self._recorder is not None:
                    self._recorder.push_audio(chunk)
                self._on_event(AudioStep((ContextAudio(row.context, chunk),)))
            case Words(context, words):
                self._on_event(Words(context, tuple(word.later(later) for word in words)))
            case SegmentEnd(context, char_end, end_sample):
                self._on_event(SegmentEnd(context, char_end, end_sample + later))
                self._end_live_text(char_end)
            case Warned() | Failed():
                if self._recorder is not None:
                    self._recorder.distrust()
                self._on_event(event)
            case _:
                self._on_event(event)

    def _end_live_text(self, char_end: int) -> None:
        self._ended_char_end = max(self._ended_char_end, char_end)
        if self._recorder is not None:
            self._recorder.end_segment(char_end)
        if self._waiting:
            self._pump_soon()
