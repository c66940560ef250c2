"""Speaks contexts from the cache, and passes on to their workers what the cache does not have.

To its context, a `CachingWorker` is the worker: it receives the commands of `seam` and answers with
events, on one clock. The worker behind it receives the segments that are not cached, and counts its
samples as if there were no others; its events are shifted onto the context's clock. Text after a
cached phrase goes to the worker once that phrase's audio has been passed on, and a cached phrase
after live text waits for the end of that text's audio. So at any time either the worker speaks or
a phrase is played, and all audio comes in the order of the text.

"""

import asyncio
import functools
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import itemgetter

from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    FRAME_SAMPLES,
    SAMPLE_RATE_HZ,
    AudioChunk,
    Segment,
    WordTimestamp,
)
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.plugins.cache.hold import Part, PhraseHold
from voiceagent_tts.plugins.cache.phrases import Phrase
from voiceagent_tts.plugins.cache.store import ContextPhrases, KnownTimes, Recorder
from voiceagent_tts.seam.aligner_messages import AlignCommand, AlignEvent
from voiceagent_tts.seam.commands import Append, Command, Credit, Flush, Submit
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
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.options import ContextRequest
from voiceagent_tts.synthesizer.workers import EventHandler, OnFree, Worker, ignore

_FIRST_CHUNK_SAMPLES = FRAME_SAMPLES  # small, so that it is marked, encoded and sent at once
_CHUNK_SAMPLES = SAMPLE_RATE_HZ
_TURN_SAMPLES = SAMPLE_RATE_HZ // 2
"""Audio behind which no chunk begins in the same iteration of the event loop: each second takes 2
ms, and up to 9 where its speed is changed."""


@dataclass(slots=True)
class _Waiting:
    """A segment that waits for the audio of those before.

    Attributes:
        segment: the text, with its readings.
        language: its language code; None if the engine chooses.
        is_last: whether no text follows.
        phrase: its audio; None where the worker speaks it.
        is_flushed: whether the worker speaks the text up to here as if it had ended.
        sent_samples: audio of the phrase that has left here; None before its words.
    """

    segment: Segment
    language: str | None
    is_last: bool
    phrase: Phrase | None
    is_flushed: bool = False
    sent_samples: int | None = None


class CachingWorker:
    """The worker of one context; it plays cached phrases, and has another worker speak the rest.

    Attributes:
        recorder: records the segments that the worker speaks; none in token feeding, in which
            sentences are parts of one run, and sound like that.
        on_decided: called with each segment, and whether the worker speaks it; set where aligners
            receive the audio of those alone.
        known_times: returns the times of words that they found; None where the worker reports them.
        is_playing: whether the audio that is being passed on is a phrase's.
        cached_samples: audio of phrases so far: how far the context's clock is ahead of the
            worker's.
    """

    def __init__(self, worker: Worker, phrases: ContextPhrases, request: ContextRequest) -> None:
        self.capabilities = worker.capabilities
        self.phrases = phrases
        self.recorder = Recorder(phrases)
        is_token_fed = request.feeding == "token"
        self._hold = PhraseHold(phrases, request.language) if is_token_fed else None
        self._language = request.language
        self.on_decided: Callable[[Segment, bool], None] = lambda segment, is_live: None
        self.known_times: KnownTimes | None = None
        self.is_playing = False
        self.cached_samples = 0
        self._worker = worker
        self._context = 0
        self._submit: Submit | None = None
        """The command that began the context."""
        self._is_submitted = False
        """Whether the worker knows the context."""
        self._waiting: deque[_Waiting] = deque()
        self._sent_char_end = self._generated_char_end = 0
        """Ends of the text that was sent to the worker, and of the text that it has generated."""
        self._cached_before: list[tuple[int, int]] = []
        """Ends of phrases in the text, and `cached_samples` at each."""
        self._last_chunk: AudioChunk | None = None
        """The last audio of the context, on its clock."""
        self._credit = Credit(0, 0.0, 0)
        """What the context has granted, on its clock."""
        self._has_excess_credit = False
        """Whether the worker still has credit that phrases have used since."""
        self._text_end: int | None = None
        """End of the text, once it is known and the worker has not been told."""
        self._step: asyncio.Handle | None = None
        self._turn_end_sample = 0
        self._giving_up: asyncio.TimerHandle | None = None

    # What a worker is to its contexts.

    def attach(self, handler: EventHandler, on_free: OnFree | None = None) -> int:
        """Reserve a row for the context; as `WorkerClient.attach`."""
        self._handler = handler
        self._context = self._worker.attach(self._receive, on_free)
        return self._context

    def detach(self, context: int, *, needs_cancel: bool) -> None:
        """Release the row, and send no more events; idempotent."""
        self._waiting.clear()
        self._text_end = None
        for later in (self._step, self._giving_up):
            if later is not None:
                later.cancel()
        self._handler = ignore  # no longer the context, which holds this object
        self._worker.detach(context, needs_cancel=needs_cancel and self._is_submitted)

    def send(self, command: Command | AlignCommand) -> None:
        """Receive a command of the context; its phrases are played in a later iteration."""
        match command:
            case Submit():
                self._submit = command
                self._add_text(command)
            case Append():
                self._add_text(command)
            case Flush():
                self._flush()
            case Credit():
                self._credit = command
                self._send_credit()
            case _:
                self._worker.send(command)
        self._step_soon()

    # Text in.

    def _add_text(self, text: Submit | Append) -> None:
        segment = Segment(text.text, text.char_base, text.readings)
        if segment.text and self._hold is None:
            return self._find_and_speak(segment, text.language, is_last=not text.more)
        if segment.text and self._hold is not None:
            self._speak_parts(self._hold, self._hold.push(segment, time.monotonic()))
        if not text.more:
            self._release_held()
            if self.phrases.has_pauses:
                self.recorder.distrust()  # the pause after the last segment may be left out
            self._text_end = segment.char_end
        return None

    def _release_held(self) -> None:
        """Speak what is held of a text that is flushed or has ended."""
        if self._hold is not None:
            self._speak_parts(self._hold, self._hold.flush())

    def _speak_parts(self, hold: PhraseHold, parts: list[Part]) -> None:
        """Speak what waits no longer, and set the timer for what does."""
        for part in parts:
            self._speak_in_order(_Waiting(part.segment, self._language, False, part.phrase))
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        if hold.due_at is not None:
            delay_s = max(0.0, hold.due_at - time.monotonic())
            give_up = functools.partial(self._give_up, hold)
            self._giving_up = asyncio.get_running_loop().call_later(delay_s, self._guard, give_up)

    def _give_up(self, hold: PhraseHold) -> None:
        """Have the worker speak the text that was held: it has waited long enough."""
        self._speak_parts(hold, hold.give_up())

    def _find_and_speak(self, segment: Segment, language: str | None, *, is_last: bool) -> None:
        lookup = self.phrases.find(segment, language, is_last=is_last)
        if lookup.phrase is None:
            self.recorder.expect(segment, lookup)
        self._speak_in_order(_Waiting(segment, language, is_last, lookup.phrase))

    def _speak_in_order(self, waiting: _Waiting) -> None:
        """Speak a segment, with the cache or the worker, as soon as it is its turn."""
        self.on_decided(waiting.segment, waiting.phrase is None)
        if waiting.phrase is None and not self._waiting:
            self._send_text(waiting)
        else:
            self._waiting.append(waiting)

    def _flush(self) -> None:
        self._release_held()
        if self._waiting:
            self._waiting[-1].is_flushed = True
        elif self._is_submitted:
            self._worker.send(Flush(self._context))

    def _send_text(self, waiting: _Waiting) -> None:
        """Send a segment to the worker, with the credit that is left of the context's."""
        is_first = not self._is_submitted
        if self._has_excess_credit:
            self._send_credit()  # before the text: it would be spoken with the old credit
        self._sent_char_end = waiting.segment.char_end
        self._worker.send(self._command_of(waiting))
        self._is_submitted = True
        if waiting.is_flushed:
            self._worker.send(Flush(self._context))
        if is_first:
            self._send_credit()

    def _command_of(self, waiting: _Waiting) -> Submit | Append:
        """The command for the worker: the first one starts its row."""
        assert self._submit is not None
        segment, more = waiting.segment, not waiting.is_last
        text = (self._context, segment.text, segment.char_start, more, waiting.language)
        if self._is_submitted:
            return Append(*text, segment.readings)
        options, continues = self._submit.options, self.cached_samples > 0
        if continues:  # the silence before the worker's first sound is a pause now
            options = replace(options, keeps_silence=True)
        return replace(
            self._submit,
            text=segment.text,
            char_base=segment.char_start,
            more=more,
            language=waiting.language,
            options=options,
            readings=segment.readings,
            continues=continues,
        )

    def _send_credit(self) -> None:
        """Give the worker what phrases have left of the context's credit."""
        wanted = self._credit.samples_wanted - self.cached_samples
        if self._is_submitted and (wanted > 0 or self._has_excess_credit):
            self._worker.send(Credit(self._context, self._credit.playout_end, wanted))
        self._has_excess_credit = False

    # Audio out.

    def _step_soon(self) -> None:
        """Play what waits in a later iteration of the event loop, as any worker answers."""
        if self._step is None and (self._waiting or self._text_end is not None):
            self._step = asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._step = None
        self._guard(self._speak_waiting)

    def _guard(self, act: Callable[[], None]) -> None:
        """Act in an iteration of the event loop without a caller: an error ends the context."""
        try:
            act()
        except Exception as error:
            failure = VoiceAgentError.wrapping(error)
            self._handler(Failed(self._context, failure.code, failure.message))

    def _speak_waiting(self) -> None:
        """Play phrases and send text that waits: what the credit and this iteration allow."""
        self._turn_end_sample = self._end_sample + _TURN_SAMPLES
        while self._waiting:
            waiting = self._waiting[0]
            if waiting.phrase is None:
                self._waiting.popleft()
                self._send_text(waiting)
            elif self._generated_char_end < self._sent_char_end:
                return  # the worker still speaks
            elif not self._play(waiting, waiting.phrase):
                return
        if self._text_end is not None:
            self._end(self._text_end)

    def _play(self, waiting: _Waiting, phrase: Phrase) -> bool:
        """Speak a phrase as far as the credit allows; return whether that is all of it."""
        if waiting.sent_samples is None:
            waiting.sent_samples = 0
            if phrase.samples:
                words = phrase.timed_words(waiting.segment, self._end_sample)
                self._handler(Words(self._context, words, is_cached=True))
        while self._waiting and waiting.sent_samples < phrase.samples:
            limit = _CHUNK_SAMPLES if self._end_sample else _FIRST_CHUNK_SAMPLES
            samples = min(limit, self._credit.samples_wanted - self._end_sample)
            if samples <= 0:
                return False
            if self._end_sample >= self._turn_end_sample:
                self._step_soon()
                return False
            start = waiting.sent_samples * BYTES_PER_SAMPLE
            self._play_chunk(phrase.pcm[start : start + samples * BYTES_PER_SAMPLE])
            waiting.sent_samples += samples
        if not self._waiting:  # the context has ended
            return False
        self._waiting.popleft()
        char_end = waiting.segment.char_end
        if self.cached_samples:
            self._cached_before.append((char_end, self.cached_samples))
        if waiting.is_last:
            self._text_end = char_end
        self._handler(SegmentEnd(self._context, char_end, self._end_sample))
        return True

    @property
    def _end_sample(self) -> int:
        """End of the audio so far, on the context's clock."""
        return 0 if self._last_chunk is None else self._last_chunk.end_sample

    def _play_chunk(self, pcm: bytes) -> None:
        chunk = AudioChunk(self._end_sample, pcm)
        self.cached_samples += chunk.samples
        self._last_chunk = chunk
        self._credit = replace(
            self._credit, playout_end=self._credit.playout_end + chunk.samples / SAMPLE_RATE_HZ
        )
        self._has_excess_credit = True
        self.is_playing = True
        self._handler(AudioStep((ContextAudio(self._context, chunk),)))
        self.is_playing = False

    def _end(self, char_end: int) -> None:
        self._text_end = None
        if self._is_submitted:
            self._worker.send(Append(self._context, "", char_end, False, None))
        else:  # the worker does not know this context
            self._handler(Done(self._context, self._end_sample))

    def _receive(self, event: Event | AlignEvent) -> None:
        """Pass an event of the worker on, on the context's clock."""
        if isinstance(event, SegmentEnd):
            self._generated_char_end = max(self._generated_char_end, event.char_end)
        self._record(event)
        self._handler(self._shifted(event))
        self._speak_waiting()

    def _record(self, event: Event | AlignEvent) -> None:
        recorder = self.recorder
        match event:
            case AudioStep((audio,)) if recorder.is_recording:
                recorder.push_audio(audio.chunk)
            case Words(_, words) if recorder.is_recording:
                recorder.push_words(words)
            case SegmentEnd(_, char_end):
                recorder.end_segment(char_end)
                self.store()
            case Warned() | Failed():
                recorder.distrust()
            case _:
                pass

    def store(self, *, is_final: bool = False) -> None:
        """Store the recorded segments whose words are known; as `Recorder.store_known`."""
        if self.recorder.complete:
            self.recorder.store_known(self.known_times, is_final=is_final)

    def _shifted(self, event: Event | AlignEvent) -> Event | AlignEvent:
        """An event of the worker on the context's clock."""
        distance = self.cached_samples
        match event:
            case AudioStep((audio,)):
                chunk = audio.chunk
                if distance:
                    chunk = replace(chunk, start_sample=chunk.start_sample + distance)
                    event = AudioStep((replace(audio, chunk=chunk),))
                self._last_chunk = chunk
            case Words(_, words) if distance:
                event = replace(event, words=tuple(word.later(distance) for word in words))
            case SegmentEnd() | Done() if distance:
                event = replace(event, end_sample=event.end_sample + distance)
            case _:
                pass
        return event

    def shifted(self, words: tuple[WordTimestamp, ...]) -> tuple[WordTimestamp, ...]:
        """Move words on the worker's clock behind the cached phrases that precede them."""
        if not self._cached_before:
            return words
        return tuple(word.later(self._cached_until(word.word.char_start)) for word in words)

    def _cached_until(self, char_start: int) -> int:
        phrases = bisect_right(self._cached_before, char_start, key=itemgetter(0))
        return self._cached_before[phrases - 1][1] if phrases else 0


def phrases_of(context: Context) -> ContextPhrases | None:
    """The cache as a context uses it; None for one that does not use it."""
    return context.worker.phrases if isinstance(context.worker, CachingWorker) else None
