"""Turns one context's events into messages for its client."""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from voiceagent_tts.audio.output import MessageQueue, OutputStream
from voiceagent_tts.core import (
    MAX_MESSAGE_PCM_BYTES,
    SAMPLE_RATE_HZ,
    AudioChunk,
    WordTimestamp,
    ms_to_samples,
    samples_to_ms,
)
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.protocol.messages import ContextOpen, ProvenanceFields, WordList
from voiceagent_tts.protocol.server_connection import ServerConnection, WireMessages
from voiceagent_tts.provenance.record import AudioRecord
from voiceagent_tts.server.metrics import Metrics
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import (
    ContextCancelled,
    ContextDone,
    ContextEvent,
    ContextFailed,
    ContextFlushed,
    ContextWarned,
    ContextWords,
)
from voiceagent_tts.text.characters import spread_characters

_Answer = ContextWords | ContextFlushed | ContextWarned | ContextCancelled | ContextFailed


@dataclass(frozen=True, slots=True)
class Outgoing:
    """WebSocket messages to send together, and what to call when they have been sent."""

    messages: WireMessages
    on_sent: Callable[[], None] = lambda: None


class ContextWriter:
    """Turns a context's events into messages, with audio in the client's rate and encoding.

    Args:
        connection: checks and builds the messages.
        message: the options of the context.
        context: the source of the events.
        record: marks the audio, and describes it at the end.
        on_ready: called when there is a message after there was none, apart from the context's
            events.
        on_error: called with each error that is sent to the client.
        metrics: counts gaps between audio messages, and the time that a cancel takes.
    """

    def __init__(
        self,
        connection: ServerConnection,
        message: ContextOpen,
        context: Context,
        record: AudioRecord,
        on_ready: Callable[[], None],
        on_error: Callable[[VoiceAgentError], None],
        metrics: Metrics,
    ) -> None:
        self.context = context
        self.done: ContextDone | None = None
        """How the context ended, once `next_message` has returned its `done`."""
        self._record = record
        self._on_ready = on_ready
        self._is_marking = False
        self._on_error = on_error
        self._metrics = metrics
        self._cancelled_at: float | None = None
        self._audio_sent_at: float | None = None
        self._connection = connection
        self._context_id = message.context_id
        self._timestamps = message.timestamps
        self._format = message.audio
        self._output = OutputStream(message.audio.encoding, message.audio.sample_rate)
        self._audio = MessageQueue()
        self._sample_offset = 0  # at the client's rate
        self._last_start = 0  # of the words returned so far, in samples
        self._after_audio: ContextDone | None = None

    def cancel(self, played_ms: int | None, waiting_text: str) -> None:
        """Cancel the context, and drop the audio that has not been sent.

        A context that has ended still sends its last audio and its `done`.

        Args:
            played_ms: as for the message `cancel`.
            waiting_text: text of the client that the context has not received.
        """
        if self._after_audio is None:
            self._cancelled_at = time.monotonic()
            self._audio = MessageQueue()  # what is being marked goes into the old one
            self._is_marking = False
            played_samples = None if played_ms is None else ms_to_samples(played_ms)
            self.context.cancel(played_samples, waiting_text)

    def next_message(self) -> Outgoing | None:
        """The next message, or None if there is none yet.

        Words come before all audio. Queued audio is merged into one message up to its maximum
        size, but never waits for more.
        """
        while True:
            if self._audio.queued_bytes and not self.context.has_words_next:
                return self._audio_message()
            if self._is_marking and not self.context.has_words_next:
                return None  # what follows the audio follows it
            event = self._after_audio or self._next_event()
            if event is None:
                return None
            match event:
                case AudioChunk(pcm=pcm):
                    self._mark(pcm)
                case ContextDone() if event.reason != "cancelled" and self._after_audio is None:
                    self._audio.push(self._output.finish())
                    self._after_audio = event
                case ContextDone():
                    self.done = event
                    return Outgoing(self._encode_done(event))
                case ContextCancelled():
                    return Outgoing(self._encode(event), self._observe_cancel)
                case _:
                    if messages := self._encode(event):
                        return Outgoing(messages)

    def _next_event(self) -> ContextEvent | None:
        """The context's next event; its reader closes a context that has ended."""
        event = self.context.next_event()
        if event is None and self.context.is_read:
            return self.context.close()
        return event

    def _mark(self, pcm: bytes) -> None:
        """Mark `pcm` and the audio that waits behind it, about as much as a message takes."""
        pieces, size_bytes = [pcm], len(pcm)
        while size_bytes < MAX_MESSAGE_PCM_BYTES and self.context.has_audio_next:
            following = self._next_event()
            assert isinstance(following, AudioChunk)
            pieces.append(following.pcm)
            size_bytes += len(following.pcm)
        self._is_marking = True
        self._record.mark(b"".join(pieces), functools.partial(self._on_marked, self._audio))

    def _on_marked(self, audio: MessageQueue, pcm: bytes) -> None:
        audio.push(self._output.push(pcm))
        if audio is self._audio:
            self._is_marking = False
            self._on_ready()

    @property
    def queued_bytes(self) -> int:
        """Bytes of audio that wait to be sent."""
        return self._audio.queued_bytes

    def _observe_cancel(self) -> None:
        if self._cancelled_at is not None:
            self._metrics.cancel_latency.observe(time.monotonic() - self._cancelled_at)

    def _on_audio_sent(self, samples: int) -> None:
        now = time.monotonic()
        if self._audio_sent_at is not None:
            self._metrics.frame_gap.observe(now - self._audio_sent_at)
        self._audio_sent_at = now
        self.context.sent(samples)

    def _audio_message(self) -> Outgoing:
        pcm = self._audio.pop()
        assert pcm is not None
        start = self._sample_offset
        self._sample_offset += len(pcm) // self._format.bytes_per_sample
        self._record.add_sent(pcm)
        messages = self._connection.audio(self._context_id, pcm, start)
        samples = self._to_clock(self._sample_offset) - self._to_clock(start)
        return Outgoing(messages, functools.partial(self._on_audio_sent, samples))

    def _to_clock(self, sample_offset: int) -> int:
        """A position at the client's rate, on the context's clock (24 kHz)."""
        return round(sample_offset * SAMPLE_RATE_HZ / self._format.sample_rate)

    def _encode(self, event: _Answer) -> WireMessages:
        context_id = self._context_id
        match event:
            case ContextWords(words):
                return self._encode_words(words)
            case ContextFlushed(flush_id, end_sample):
                return self._connection.flushed(context_id, flush_id, samples_to_ms(end_sample))
            case ContextWarned(code, message):
                return self._connection.warning(context_id, code, message)
            case ContextCancelled(cut, _, basis):
                return self._connection.cancelled(context_id, cut, basis)
            case ContextFailed(error):
                self._on_error(error)
                return self._connection.error(error, context_id)

    def _encode_done(self, done: ContextDone) -> WireMessages:
        report = done.report
        return self._connection.done(
            self._context_id,
            done.reason,
            chars=report.chars,
            ttfa_ms=None if report.ttfa_s is None else round(report.ttfa_s * 1000),
            gen_ms=round(report.gen_s * 1000),
            words_final=self._encode_final(done.words_final),
            provenance=self._provenance(),
        )

    def _encode_words(self, words: Sequence[WordTimestamp]) -> WireMessages:
        if self._timestamps == "none":
            return []
        timestamps = self._words_or_characters(words, self._last_start)
        self._last_start = timestamps[-1].start_sample
        return self._connection.words(self._context_id, timestamps)

    def _encode_final(self, words: Sequence[WordTimestamp] | None) -> WordList | None:
        if words is None or self._timestamps == "none":
            return None
        return WordList.of(self._words_or_characters(words))

    def _provenance(self) -> ProvenanceFields | None:
        if not self._sample_offset:
            return None
        return ProvenanceFields.model_validate(self._record.describe().as_json())

    def _words_or_characters(
        self, words: Sequence[WordTimestamp], earliest: int = 0
    ) -> Sequence[WordTimestamp]:
        """The words, or their characters if the client asked for these."""
        return spread_characters(words, earliest) if self._timestamps == "char" else words
