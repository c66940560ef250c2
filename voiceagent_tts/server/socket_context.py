"""One context of a socket, from the message that opens it to its `done`.

`SocketContext` receives the client's messages, and `ContextWriter` turns the context's events into
messages for the client. Both answer through the `SocketWriter` of their socket.

Opening a context and charging its text may take seconds: a worker restarts, Redis is away, a
lexicon is read. Both happen in a task of the context. What the client sends meanwhile waits in the
context's inbox, so that no caller of this module waits, and nothing delays a `cancel`.
"""

import asyncio
import contextlib
import datetime
import functools
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from voiceagent_tts.audio.output import DeliveredAudio, MessageQueue, OutputStream
from voiceagent_tts.core import (
    MAX_MESSAGE_PCM_BYTES,
    SAMPLE_RATE_HZ,
    AudioChunk,
    DoneReason,
    ms_to_samples,
    samples_to_ms,
)
from voiceagent_tts.errors import InvalidRequestError, VoiceAgentError
from voiceagent_tts.protocol.messages import (
    ContextEnd,
    ContextFlush,
    ContextOpen,
    ContextText,
    ProvenanceFields,
    WordList,
)
from voiceagent_tts.protocol.server_connection import ServerConnection, WireMessages
from voiceagent_tts.server.admission import AdmittedContext, Origin, options_of
from voiceagent_tts.server.state import ServerState
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import (
    ContextAnswer,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    ContextFlushed,
    ContextWarned,
    ContextWords,
    ContextWordsMoved,
)
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.synthesizer.segments import too_long
from voiceagent_tts.text.cut import TimedText

Input = ContextText | ContextFlush | ContextEnd

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """WebSocket messages to send together, and what to call when they have been sent."""

    messages: WireMessages
    on_sent: Callable[[], None] = lambda: None


class _Socket(Protocol):
    """The part of `websocket.SocketWriter` that contexts use."""

    state: ServerState
    connection: ServerConnection

    def answer(self, messages: WireMessages) -> None: ...
    def refuse(
        self, error: VoiceAgentError, context_id: str, metadata: dict[str, Any] | None = None
    ) -> None: ...
    def note_error(self, error: VoiceAgentError, context_id: str) -> None: ...
    def note_accepted(self) -> None: ...
    def mark_ready(self, context_id: str) -> None: ...
    def remove(self, context_id: str) -> None: ...


class SocketContext:
    """Opens a context, feeds it and ends it; no call waits."""

    def __init__(self, socket: _Socket, message: ContextOpen, origin: Origin) -> None:
        self.context_id = message.context_id
        self.done: ContextDone | None = None  # once `next_message` has returned it
        self.is_refused = False  # it could not be opened
        self._socket = socket
        self._connection = socket.connection
        self._message = message
        self._origin = origin
        self._admitted: AdmittedContext | None = None  # once the context is open
        self._writer: ContextWriter | None = None
        self._inbox = _Inbox(socket.state.settings.max_text_chars)  # for the task
        self._dropped_text = ""  # text that still waited at the end
        self._is_over = False  # its `done` was sent as an answer
        # None once stopped: a cancelled task keeps its frames, and these keep `self`: a cycle.
        self._task: asyncio.Task[None] | None = asyncio.create_task(self._open())

    # Messages of the client.

    def feed(self, message: Input) -> None:
        """Act on text, a flush or the end of the text, after all that came before it."""
        if self._admitted is None or self._inbox:
            try:
                self._inbox.put(message)
            except InvalidRequestError as error:
                self._answer_dropped(message, error)
        elif not self._act_now(self._admitted, message):
            self._inbox.put(message)
            self._task = asyncio.create_task(self._empty_inbox(self._admitted))

    def cancel(self, played_ms: int | None) -> None:
        """Stop the context and answer with its cut, or end it before it is open."""
        self._after_first_step(functools.partial(self._cancel_now, played_ms))

    def _cancel_now(self, played_ms: int | None) -> None:
        if self._is_over:
            return
        self._stop_task()
        if self._writer is not None:
            self._writer.cancel(played_ms, self._dropped_text)
            return
        cut = self.timed_text.cut(0)
        basis = "clock" if played_ms is None else "played_ms"
        self._socket.answer(self._connection.cancelled(self.context_id, cut, basis))
        self._end_at_once("cancelled", len(self.timed_text.text))

    def fail(self, error: VoiceAgentError) -> None:
        """End the context with an error: a message of the client could not be handled."""
        self._stop_task()
        if self._admitted is None:
            self._refuse(error)
        else:
            self._admitted.context.fail(error)

    def abandon(self) -> None:
        """Cancel the context of a client that has disconnected."""
        self._after_first_step(self._abandon_now)

    def _abandon_now(self) -> None:
        self._stop_task()
        if self._admitted is not None:
            self._admitted.context.abandon()

    def _after_first_step(self, end: Callable[[], None]) -> None:
        """Call `end` now, or when the task has begun to open the context.

        Most contexts are open after the first step; on a busy server they wait for their turn. A
        context that is cancelled in the same moment is counted and logged like any other.
        """
        if self._admitted is None:
            asyncio.get_running_loop().call_soon(end)
        else:
            end()

    @property
    def timed_text(self) -> TimedText:
        """The text that the client has sent and the times of its words, also after the end."""
        waiting = self._dropped_text + self._inbox.text
        if self._admitted is None:
            return TimedText(waiting)
        return self._admitted.context.timed_text(waiting)

    # Messages to the client.

    def next_message(self) -> Outgoing | None:
        """The next message, or None if there is none yet."""
        if self._writer is None:
            return None
        try:
            message = self._writer.next_message()
        except Exception as error:  # other contexts of the socket continue
            self._abandon_now()
            return self._refuse(VoiceAgentError.wrapping(error))
        if self._writer.done is not None:
            self.done = self._writer.done
            self._stop_task()
        return message

    @property
    def queued_bytes(self) -> int:
        """Bytes of audio that wait to be sent."""
        return 0 if self._writer is None else self._writer.audio.queued_bytes

    # Work that may wait.

    async def _open(self) -> None:
        on_event = functools.partial(self._socket.mark_ready, self.context_id)
        started = time.monotonic()
        try:
            opener = self._socket.state.opener
            admitted = await opener.open(self._origin, _options(self._message), on_event)
        except Exception as error:  # other contexts of the socket continue
            self._refuse(VoiceAgentError.wrapping(error))
            return
        self._set_open(admitted, round((time.monotonic() - started) * 1000))
        await self._empty_inbox(admitted)

    def _set_open(self, admitted: AdmittedContext, queue_ms: int) -> None:
        self._socket.note_accepted()
        context, message = admitted.context, self._message
        self._admitted = admitted
        self._writer = ContextWriter(self._socket, message, context)
        voice, language = context.voice.name, context.request.language
        spoken = {**self._origin.ids, "voice": voice, "language": language}
        _log.info("context_opened", **spoken, metadata=message.metadata)
        opened = self._connection.opened(
            self.context_id, voice=voice, language=language, seed=message.seed, queue_ms=queue_ms
        )
        self._socket.answer(opened)

    def _refuse(self, error: VoiceAgentError) -> None:
        self._socket.refuse(error, self.context_id, self._message.metadata)
        admitted = self._admitted
        self.is_refused = admitted is None
        self._end_at_once("error", 0 if admitted is None else len(admitted.context.text))

    def _end_at_once(self, reason: DoneReason, chars: int) -> None:
        """Send the `done` of a context that was never open, or cannot send it in its turn."""
        self._is_over = True
        self._socket.answer(self._connection.done(self.context_id, reason, chars=chars))
        self._socket.remove(self.context_id)

    async def _empty_inbox(self, admitted: AdmittedContext) -> None:
        while self._inbox:
            message = self._inbox.first
            if not self._act_now(admitted, message):
                assert isinstance(message, ContextText), "nothing else waits to be charged"
                with self._answering_errors(admitted, message):
                    await admitted.push_text(message.text)
                    self._socket.note_accepted()
            self._inbox.pop()
            if self._inbox:  # none may be waited for when it is empty: the next message starts anew
                await asyncio.sleep(0)  # other clients must not wait for a full inbox

    # Work that never waits.

    def _act_now(self, admitted: AdmittedContext, message: Input) -> bool:
        """Act on a message; return False for text that must be charged first."""
        with self._answering_errors(admitted, message):
            match message:
                case ContextText(text=text):
                    admission = admitted.admission
                    if admission is not None and not admission.defer_charge(len(text)):
                        return False
                    admitted.context.push_text(text)
                    self._socket.note_accepted()
                case ContextFlush(flush_id=flush_id):
                    admitted.context.flush(flush_id)
                case ContextEnd():
                    admitted.context.finish()
        return True

    @contextlib.contextmanager
    def _answering_errors(self, admitted: AdmittedContext, message: Input) -> Iterator[None]:
        """Answer an error of `message`, which is dropped; an unexpected one ends the context."""
        try:
            yield
        except VoiceAgentError as error:
            self._answer_dropped(message, error)
        except Exception as error:
            admitted.context.fail(VoiceAgentError.wrapping(error))

    def _answer_dropped(self, message: Input, error: VoiceAgentError) -> None:
        """Answer a message that is dropped; for text, with its place."""
        if isinstance(message, ContextText):
            is_waiting = bool(self._inbox) and self._inbox.first is message
            waiting = self._inbox.text if is_waiting else ""
            start = len(self.timed_text.text) - len(waiting)
            error.dropped = (start, start + len(message.text))
        self._socket.refuse(error, self.context_id)

    def _stop_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._dropped_text += self._inbox.text
        self._inbox.clear()


class ContextWriter:
    """Turns a context's events into messages, with audio in the client's rate and encoding."""

    def __init__(self, socket: _Socket, message: ContextOpen, context: Context) -> None:
        self.context = context
        self.done: ContextDone | None = None  # once `next_message` has returned it
        self._socket = socket
        self._connection = socket.connection
        self._metrics = socket.state.metrics
        self._delivered = DeliveredAudio(socket.state.audio_filter)
        self._is_filtering = False
        self._cancelled_at: float | None = None
        self._audio_sent_at: float | None = None
        self._context_id = message.context_id
        self._sends_words = message.timestamps == "word"
        self._format = message.audio
        self._output = OutputStream(message.audio.encoding, message.audio.sample_rate)
        self.audio = MessageQueue()  # waits to be sent
        self._sample_offset = 0  # at the client's rate
        self._pending_done: ContextDone | None = None  # it leaves after the last audio
        self._waiting_chars = 0  # of text that the context had not received when it was cancelled

    def cancel(self, played_ms: int | None, waiting_text: str) -> None:
        """Cancel the context, and drop the audio that has not been sent.

        It has no effect once the context is done: its last audio and `done` are still sent.
        """
        if self._pending_done is None:
            self._cancelled_at = time.monotonic()
            self.audio = MessageQueue()  # audio that is being filtered goes into the old one
            self._is_filtering = False
            self._waiting_chars = len(waiting_text)
            played_samples = None if played_ms is None else ms_to_samples(played_ms)
            self.context.cancel(played_samples, waiting_text)

    def next_message(self) -> Outgoing | None:
        """The next message, or None if there is none yet.

        Words come before all audio. Queued audio is merged into one message up to its maximum
        size, but never waits for more.
        """
        while True:
            if self.audio.queued_bytes and not self.context.has_words_next:
                return self._audio_message()
            if self._is_filtering and not self.context.has_words_next:
                return None  # later events must follow the audio
            if self._pending_done is not None:
                self.done = self._pending_done
                return Outgoing(self._encode_done(self.done))
            match event := self.context.next_event():
                case None:
                    return None
                case AudioChunk(pcm=pcm):
                    self._filter(pcm)
                case ContextDone():
                    if event.reason != "cancelled":
                        self.audio.push(self._output.finish())
                    self._pending_done = event
                case ContextCancelled():
                    return Outgoing(self._encode(event), self._observe_cancel)
                case _:
                    if messages := self._encode(event):
                        return Outgoing(messages)

    def _filter(self, pcm: bytes) -> None:
        """Filter `pcm` and the audio queued after it, up to about one message."""
        pieces, size_bytes = [pcm], len(pcm)
        while size_bytes < MAX_MESSAGE_PCM_BYTES and self.context.has_audio_next:
            following = self.context.next_event()
            assert isinstance(following, AudioChunk)
            pieces.append(following.pcm)
            size_bytes += len(following.pcm)
        self._is_filtering = True
        self._delivered.filter(b"".join(pieces), functools.partial(self._on_filtered, self.audio))

    def _on_filtered(self, audio: MessageQueue, pcm: bytes) -> None:
        try:
            audio.push(self._output.push(pcm))
        except Exception as error:  # no message of the client, and none to it, would report it
            self.context.fail(VoiceAgentError.wrapping(error))
        if audio is self.audio:
            self._is_filtering = False
            self._socket.mark_ready(self._context_id)

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
        pcm = self.audio.pop()
        assert pcm is not None
        start = self._sample_offset
        self._sample_offset += len(pcm) // self._format.bytes_per_sample
        self._delivered.add_sent(pcm)
        messages = self._connection.audio(self._context_id, pcm, start)
        samples = self._to_clock(self._sample_offset) - self._to_clock(start)
        on_sent = functools.partial(self._on_audio_sent, samples)
        return Outgoing(messages, on_sent)

    def _to_clock(self, sample_offset: int) -> int:
        """How many samples at 24 kHz become `sample_offset` at the client's rate, at most."""
        if sample_offset == 0:
            return 0
        return int((sample_offset + 0.5) * SAMPLE_RATE_HZ / self._format.sample_rate)

    def _encode(self, event: ContextAnswer) -> WireMessages:
        context_id = self._context_id
        match event:
            case ContextWords(words):
                return self._connection.words(context_id, words) if self._sends_words else []
            case ContextWordsMoved(words):
                return self._connection.words_moved(context_id, words) if self._sends_words else []
            case ContextFlushed(flush_id, end_sample):
                return self._connection.flushed(context_id, flush_id, samples_to_ms(end_sample))
            case ContextWarned(code, message):
                return self._connection.warning(context_id, code, message)
            case ContextCancelled(cut, basis):
                return self._connection.cancelled(context_id, cut, basis)
            case ContextFailed(error):
                self._socket.note_error(error, context_id)
                return self._connection.error(error, context_id)

    def _encode_done(self, done: ContextDone) -> WireMessages:
        report, words = done.report, done.words_final
        model = self.context.worker.capabilities.model
        return self._connection.done(
            self._context_id,
            done.reason,
            chars=report.chars + self._waiting_chars,
            ttfa_ms=None if report.ttfa_s is None else round(report.ttfa_s * 1000),
            gen_ms=round(report.gen_s * 1000),
            words_final=WordList.of(words) if words is not None and self._sends_words else None,
            provenance=provenance_of(self._delivered, model) if self._sample_offset else None,
        )


def provenance_of(
    delivered: DeliveredAudio, model: str, *, is_complete: bool = True
) -> ProvenanceFields:
    """Describe the audio that a model has made; its digest is known once all of it was sent."""
    return ProvenanceFields(
        sha256=delivered.sha256 if is_complete else None,
        model=model,
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        key_id=delivered.key_id,
    )


class _Inbox:
    """Messages that a context cannot act on yet, in order.

    Args:
        max_chars: longest text that waits; a flush counts as one character.
    """

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._messages: deque[Input] = deque()
        self._chars = 0

    def __bool__(self) -> bool:
        return bool(self._messages)

    @property
    def first(self) -> Input:
        return self._messages[0]

    @property
    def text(self) -> str:
        return "".join(each.text for each in self._messages if isinstance(each, ContextText))

    def put(self, message: Input) -> None:
        chars = self._chars + _chars_of(message)
        if chars > self._max_chars and not isinstance(message, ContextEnd):
            most = f"{self._max_chars} characters waiting to be spoken, got {chars}"
            raise too_long(f"{most}; send the rest once audio has arrived")
        self._messages.append(message)
        self._chars = chars

    def pop(self) -> None:
        self._chars -= _chars_of(self._messages.popleft())

    def clear(self) -> None:
        self._messages.clear()
        self._chars = 0


def _chars_of(message: Input) -> int:
    return len(message.text) if isinstance(message, ContextText) else 1


def _options(message: ContextOpen) -> ContextOptions:
    options = options_of(message)
    return replace(
        options,
        voice=message.voice,
        language=message.language,
        speech=replace(
            options.speech,
            instruct=message.instruct,
            initial_frames=message.initial_frames,
            is_batch=message.priority == "batch",
        ),
        max_buffer_delay_ms=message.max_buffer_delay_ms,
        max_lead_s=message.max_lead_s,
        text_feeding=message.text_feeding,
        idle_s=message.idle_s,
    )
