"""One socket, in any dialect: a task that reads, a task that writes, and its contexts.

The writer is the socket's only writer. It takes answers first and then one message of each context
in turn, so that contexts share the socket evenly; in a sequential dialect they speak one after the
other. What is legal is decided by `protocol.server_connection`, what messages look like by the
dialect, what is spoken by the synthesizer.
"""

import asyncio
import functools
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog
from fastapi import WebSocket, WebSocketDisconnect

from voiceagent_tts.audio.framing import MessageQueue
from voiceagent_tts.audio.output import OutputStream
from voiceagent_tts.core import (
    MAX_MESSAGE_PCM_BYTES,
    SAMPLE_RATE_HZ,
    AudioChunk,
    WordTimestamp,
    ms_to_samples,
    samples_to_ms,
)
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, VoiceAgentError
from voiceagent_tts.protocol.dialects.dialect import Answer, Command, Dialect, Frames
from voiceagent_tts.protocol.messages import (
    SUBPROTOCOL,
    Close,
    ContextCancel,
    ContextCut,
    ContextEnd,
    ContextFlush,
    ContextOpen,
    ContextText,
    Ping,
    Prepare,
    SessionLimits,
    SessionUpdate,
    WordList,
)
from voiceagent_tts.protocol.refusals import RefusedMessageError
from voiceagent_tts.protocol.server_connection import ServerConnection
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.server.shell import Shell
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import (
    ContextCancelled,
    ContextDone,
    ContextEvent,
    ContextFailed,
    ContextFlushed,
    ContextWords,
)
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.text.characters import spread_characters

_CUT_MEMORY_S = 120.0
_MAX_RECENT = 4_096
_MAX_ANSWERS = 256

_log = structlog.get_logger(__name__)


class Session:
    """One accepted socket; `run` it to its end.

    Args:
        shell: what all routes share.
        websocket: not yet accepted.
        dialect: what its client speaks.
    """

    def __init__(self, shell: Shell, websocket: WebSocket, dialect: Dialect) -> None:
        self._shell = shell
        self._websocket = websocket
        self._connection = ServerConnection(_limits(shell), dialect)
        self._answers: deque[str | bytes] = deque()
        self._outlets: dict[str, Outlet] = {}
        self._ready: deque[str] = deque()  # contexts with something to send, each once
        self._recent: dict[str, tuple[Context, float]] = {}  # ended contexts, for `cut`
        self._closing: tuple[int, str] | None = None
        self._has_work = asyncio.Event()
        self._has_room = asyncio.Event()
        self.session_id = uuid.uuid4().hex

    async def run(self) -> None:
        """Accept, serve until either side ends it, and leave nothing behind."""
        offered = self._websocket.scope["subprotocols"]
        await self._websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        self._shell.sessions.add(self)
        self._shell.metrics.sockets.inc()
        self._answer(self._connection.ready(session_id=self.session_id, model=self._model()))
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self._leave()
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, WebSocketDisconnect):
                self._close_now(1011, "internal error")
                raise result

    def drain(self, deadline_ms: int) -> None:
        """Tell the client that the server will end, and refuse new contexts."""
        self._answer(self._connection.draining(deadline_ms))

    @property
    def is_speaking(self) -> bool:
        """Whether a context of this socket is still owed its `done`."""
        return bool(self._outlets)

    def close(self, code: int, reason: str) -> None:
        """Close the socket when the answers that wait have been sent."""
        self._closing = (code, reason)
        self._has_work.set()

    def _model(self) -> str:
        return next(iter(self._shell.synthesizer.supervisors.values())).capabilities.model

    def _leave(self) -> None:
        self._shell.sessions.discard(self)
        for outlet in self._outlets.values():
            outlet.context.abandon()
        _log.info("socket_closed", session_id=self.session_id, contexts=len(self._outlets))

    # What comes.

    async def _read(self) -> None:
        while True:
            event = await self._websocket.receive()
            if event["type"] == "websocket.disconnect":
                return
            data = event.get("text")
            await self._receive(event["bytes"] if data is None else data)
            # Whoever sends nonsense without reading the answers is not read any further.
            while len(self._answers) > _MAX_ANSWERS:
                self._has_room.clear()
                await self._has_room.wait()

    async def _receive(self, data: str | bytes) -> None:
        try:
            messages = self._connection.receive(data)
        except RefusedMessageError as error:
            self._count(error)
            self._answer(self._connection.refused(error))
            return
        for message in messages:
            try:
                await self._obey(message)
            except VoiceAgentError as error:
                self._count(error)
                context_id = getattr(message, "context_id", None)
                self._answer(self._connection.error(error, context_id))

    async def _obey(self, message: Command) -> None:
        match message:
            case Answer(data):
                self._answer([data])
            case ContextOpen():
                await self._open(message)
            case ContextText() | ContextFlush() | ContextEnd():
                # Where the context was to be opened by the same message and could not, `done` is
                # said already.
                if outlet := self._outlets.get(message.context_id):
                    self._feed(outlet.context, message)
            case ContextCancel(context_id=context_id, played_ms=played_ms):
                self._outlets[context_id].cancel(played_ms)
            case ContextCut(context_id=context_id, played_ms=played_ms):
                cut = self._any_context(context_id).cut(ms_to_samples(played_ms))
                self._answer(self._connection.cut(context_id, cut))
            case Prepare(voice=voice, language=language, instruct=instruct):
                options = ContextOptions(voice, language, SpeechOptions(instruct))
                await self._shell.synthesizer.prepare(options)
            case Ping(t=t):
                self._answer(self._connection.pong(t))
            case Close():
                self.close(1000, "as the client asked")
            case SessionUpdate():
                pass  # the connection keeps the defaults

    async def _open(self, message: ContextOpen) -> None:
        context_id = message.context_id
        mark_ready = functools.partial(self._mark_ready, context_id)
        started = time.monotonic()
        try:
            context = await self._shell.synthesizer.open(_options(message), mark_ready)
        except VoiceAgentError as error:
            self._count(error)
            self._answer(self._connection.error(error, context_id))
            self._answer(self._connection.done(context_id, "error", chars=0))
            return
        self._outlets[context_id] = Outlet(self._connection, message, context, self._count)
        opened = self._connection.opened(
            context_id,
            voice=context.voice.name,
            language=context.language,
            seed=message.seed,
            queue_ms=round((time.monotonic() - started) * 1000),
        )
        self._answer(opened)

    def _feed(self, context: Context, message: ContextText | ContextFlush | ContextEnd) -> None:
        match message:
            case ContextText(text=text):
                context.push_text(text)
            case ContextFlush(flush_id=flush_id):
                context.flush(flush_id)
            case ContextEnd():
                context.finish()

    def _any_context(self, context_id: str) -> Context:
        if context_id in self._outlets:
            return self._outlets[context_id].context
        context, ended_at = self._recent.get(context_id, (None, 0.0))
        if context is None or time.monotonic() - ended_at > _CUT_MEMORY_S:
            raise InvalidRequestError(
                f"context {context_id!r} ended more than {_CUT_MEMORY_S:g} s ago, or never spoke",
                code=ErrorCode.CONTEXT_NOT_FOUND,
            )
        return context

    def _count(self, error: VoiceAgentError) -> None:
        self._shell.metrics.errors.labels(error.code).inc()

    # What goes.

    def _answer(self, frames: Iterable[str | bytes]) -> None:
        self._answers.extend(frames)
        self._has_work.set()

    def _mark_ready(self, context_id: str) -> None:
        if context_id not in self._ready:
            self._ready.append(context_id)
        self._has_work.set()

    async def _write(self) -> None:
        """Send what there is, in the order in which it was made, and wait for more."""
        while True:
            self._has_work.clear()
            while self._answers or (self._ready and self._closing is None):
                if self._answers:
                    await self._send(Outgoing([self._answers.popleft()]))
                    self._has_room.set()
                elif outgoing := self._next_of_contexts():
                    await self._send(outgoing)
            if self._closing is not None:
                await self._websocket.close(*self._closing)
                return
            await self._has_work.wait()

    def _next_of_contexts(self) -> "Outgoing | None":
        """One message of the context whose turn it is."""
        context_id = self._ready.popleft()
        outlet = self._outlets.get(context_id)
        if outlet is None or not self._may_speak(context_id):
            return None
        outgoing = outlet.next_message()
        if outlet.is_over:
            self._remember(context_id, self._outlets.pop(context_id).context)
            if self._connection.is_sequential and self._outlets:
                self._mark_ready(next(iter(self._outlets)))
        elif outgoing is not None:
            self._mark_ready(context_id)
        return outgoing

    def _may_speak(self, context_id: str) -> bool:
        return not self._connection.is_sequential or context_id == next(iter(self._outlets))

    def _remember(self, context_id: str, context: Context) -> None:
        now = time.monotonic()
        self._recent[context_id] = (context, now)
        while len(self._recent) > _MAX_RECENT or now - self._oldest_end() > _CUT_MEMORY_S:
            del self._recent[next(iter(self._recent))]

    def _oldest_end(self) -> float:
        return next(iter(self._recent.values()))[1]

    async def _send(self, outgoing: "Outgoing") -> None:
        try:
            async with asyncio.timeout(self._shell.settings.slow_consumer_s):
                for frame in outgoing.frames:
                    if isinstance(frame, str):
                        await self._websocket.send_text(frame)
                    else:
                        await self._websocket.send_bytes(frame)
        except TimeoutError:
            self._shell.metrics.slow_consumers.inc()
            _log.warning("slow_consumer", session_id=self.session_id)
            self._close_now(4008, "slow consumer: nothing was read")
            raise WebSocketDisconnect(4008) from None
        outgoing.on_sent()

    def _close_now(self, code: int, reason: str) -> None:
        """Close without waiting for a client that may not read."""
        close_now: Callable[[int, str], None]
        close_now = self._websocket.scope["extensions"]["voiceagent_tts.close_now"]
        close_now(code, reason)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Something for the socket, and what to do when it has left."""

    frames: Frames
    on_sent: Callable[[], None] = lambda: None


class Outlet:
    """One context's events as messages, its audio in the rate and encoding of its client.

    Args:
        connection: decides what is legal.
        message: how the client wants the context.
        context: that speaks.
        on_error: told of what the client is told that went wrong.
    """

    def __init__(
        self,
        connection: ServerConnection,
        message: ContextOpen,
        context: Context,
        on_error: Callable[[VoiceAgentError], None] = lambda error: None,
    ) -> None:
        self.context = context
        self.is_over = False
        self._on_error = on_error
        self._connection = connection
        self._context_id = message.context_id
        self._timestamps = message.timestamps
        self._format = message.audio
        self._output = OutputStream(message.audio.encoding, message.audio.sample_rate)
        self._audio = MessageQueue()
        self._sample_offset = 0  # at the client's rate
        self._last_start = 0  # of the words that have left
        self._after_audio: ContextDone | None = None

    def cancel(self, played_ms: int | None) -> None:
        """Cancel the context and drop the audio that has not left.

        Of a context that has ended, the last audio and `done` are on their way and still go.
        """
        if self._after_audio is None:
            self._audio = MessageQueue()
            self.context.cancel(None if played_ms is None else ms_to_samples(played_ms))

    def next_message(self) -> Outgoing | None:
        """The next message, or None where there is none yet.

        Words come before all audio. Audio that is queued is merged up to the cap; none waits for
        more to come.
        """
        while True:
            if not self.context.has_words_next and self._is_audio_due():
                return self._audio_message()
            event = self._after_audio or self.context.next_event()
            if event is None:
                return None
            if isinstance(event, AudioChunk):
                self._audio.push(self._output.push(event.pcm))
            elif (
                isinstance(event, ContextDone)
                and event.reason != "cancelled"
                and (event is not self._after_audio)
            ):
                self._audio.push(self._output.finish())
                self._after_audio = event
            elif (frames := self._encode(event)) or self.is_over:
                return Outgoing(frames)

    def _is_audio_due(self) -> bool:
        queued_bytes = self._audio.queued_bytes
        is_full = queued_bytes >= MAX_MESSAGE_PCM_BYTES
        return is_full or (queued_bytes > 0 and not self.context.has_audio_next)

    def _audio_message(self) -> Outgoing:
        pcm = self._audio.pop()
        assert pcm is not None
        start = self._sample_offset
        self._sample_offset += len(pcm) // self._format.bytes_per_sample
        frames = self._connection.audio(self._context_id, pcm, start)
        samples = self._to_clock(self._sample_offset) - self._to_clock(start)
        return Outgoing(frames, functools.partial(self.context.sent, samples))

    def _to_clock(self, sample_offset: int) -> int:
        """A position at the client's rate on the context's clock."""
        return round(sample_offset * SAMPLE_RATE_HZ / self._format.sample_rate)

    def _encode(self, event: ContextEvent) -> Frames:
        context_id = self._context_id
        match event:
            case ContextWords(words):
                return self._encode_words(words)
            case ContextFlushed(flush_id, end_sample):
                return self._connection.flushed(context_id, flush_id, samples_to_ms(end_sample))
            case ContextCancelled(cut, _, basis):
                return self._connection.cancelled(context_id, cut, basis)
            case ContextFailed(error):
                self._on_error(error)
                return self._connection.error(error, context_id)
            case ContextDone(reason, report, words_final):
                self.is_over = True
                return self._connection.done(
                    context_id,
                    reason,
                    chars=report.chars,
                    ttfa_ms=None if report.ttfa_s is None else round(report.ttfa_s * 1000),
                    gen_ms=round(report.gen_s * 1000),
                    words_final=self._final(words_final),
                )
            case AudioChunk():
                raise AssertionError("audio is queued, not encoded")

    def _encode_words(self, words: Sequence[WordTimestamp]) -> Frames:
        if self._timestamps == "none":
            return []
        timestamps = self._as_asked(words, self._last_start)
        self._last_start = timestamps[-1].start_sample
        return self._connection.words(self._context_id, timestamps)

    def _final(self, words: Sequence[WordTimestamp] | None) -> WordList | None:
        if words is None or self._timestamps == "none":
            return None
        return WordList.of(self._as_asked(words))

    def _as_asked(
        self, words: Sequence[WordTimestamp], earliest: int = 0
    ) -> Sequence[WordTimestamp]:
        """Words, or their characters where the client asked for these."""
        return spread_characters(words, earliest) if self._timestamps == "char" else words


def _limits(shell: Shell) -> SessionLimits:
    settings = shell.settings
    return SessionLimits(
        max_text_chars=settings.max_text_chars,
        max_contexts=settings.max_contexts,
        context_idle_s=settings.context_idle_s,
        max_audio_s=settings.max_audio_s,
        max_lead_s=settings.max_lead_s,
    )


def _options(message: ContextOpen) -> ContextOptions:
    """What the synthesizer needs of an open message."""
    return ContextOptions(
        voice=message.voice,
        language=message.language,
        speech=SpeechOptions(
            instruct=message.instruct,
            speed=message.speed,
            seed=message.seed,
            initial_frames=message.initial_frames,
            keeps_silence=message.leading_silence,
            is_batch=message.priority == "batch",
        ),
        max_buffer_delay_ms=message.max_buffer_delay_ms,
        max_lead_s=message.max_lead_s,
        text_feeding=message.text_feeding,
    )
