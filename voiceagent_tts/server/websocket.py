"""One socket, in any dialect: receives the client's messages, acts on them, and answers.

`protocol.server_connection` decides which messages are legal, the dialect how they look, the
synthesizer what is spoken. Everything leaves through the session's `SocketWriter`, which sends
answers first and then the contexts' messages in turn. Nothing that a message asks for makes the
next message wait: what takes time happens in `SocketContext`.
"""

import asyncio
import sys
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response, WebSocket, WebSocketDisconnect
from starlette.exceptions import HTTPException

from voiceagent_tts.core import SAMPLE_RATE_HZ, TRACEPARENT, ms_to_samples
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, VoiceAgentError
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
)
from voiceagent_tts.protocol.refusals import RefusedMessageError
from voiceagent_tts.protocol.server_connection import (
    Answer,
    Command,
    Dialect,
    MakeMessages,
    ServerConnection,
)
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.server import auth
from voiceagent_tts.server.admission import Origin
from voiceagent_tts.server.auth import caller_of
from voiceagent_tts.server.callers import Caller
from voiceagent_tts.server.error_answers import error_response, log_if_unexpected, refused_request
from voiceagent_tts.server.held import MEMORY_S
from voiceagent_tts.server.request_log import log_request, path_of, request_id_of
from voiceagent_tts.server.socket_context import Outgoing, SocketContext
from voiceagent_tts.server.state import SLOW_CONSUMER_S, ServerState, draining_error
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.text.cut import TimedText

_MAX_ANSWERS_BYTES = 64 * 1024
"""Memory of a socket's unsent answers beyond which no more messages are received."""
_MAX_LOGGED = 10  # number of ids in a line of the log
MAX_REFUSALS = 32
"""Number of `rate_limited` answers in a row after which a socket is closed with 4029."""
_REFUSED_LINES_PER_S = 10  # lines of the log for refused messages of one socket


class Session:
    """Serves one socket to its end with `run`."""

    def __init__(self, state: ServerState, websocket: WebSocket, dialect: Dialect) -> None:
        self.session_id = uuid.uuid4().hex
        self.caller = caller_of(websocket.scope)  # the key and the address of the client
        self._state = state
        self._log = structlog.get_logger(__name__).bind(session_id=self.session_id)
        self._websocket = websocket
        self._traceparent = websocket.headers.get(TRACEPARENT)
        self._connection = ServerConnection(_limits(state), dialect)
        self._writer = SocketWriter(
            websocket, state, self._connection, self.session_id, on_over=self._remember
        )
        self._last_end_at = time.monotonic()

    async def run(self) -> None:
        """Accept the socket, serve it until either side ends it, and release its contexts."""
        offered = self._websocket.scope["subprotocols"]
        request_id = request_id_of(self._websocket.scope)
        shown = self._state.slots_header(self._websocket.scope) | {"X-Request-Id": request_id}
        headers = [(name.encode(), value.encode()) for name, value in shown.items()]
        await self._websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None, headers)
        self._state.metrics.sockets.inc()
        self._log.info(
            "socket_opened",
            path=path_of(self._websocket.scope),
            request_id=request_id,
            ip=self.caller.ip,
            key_id=self.caller.key_id,
        )
        ready = self._connection.ready(
            session_id=self.session_id,
            model=self._state.models[0],
            has_word_times=self._state.synthesizer.has_word_times,
        )
        self._writer.answer(ready)
        self._state.sessions.add(self)
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._writer.run())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self._release()
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, WebSocketDisconnect):
                log_if_unexpected(VoiceAgentError.wrapping(result), session_id=self.session_id)
                self._writer.close_now(1011, "internal error")

    def drain(self, deadline_ms: int) -> None:
        """Send `draining` to the client, and refuse new contexts."""
        self._writer.answer(self._connection.draining(deadline_ms))

    @property
    def has_contexts(self) -> bool:
        """Whether a context of this socket has not sent its `done` yet."""
        return bool(self._writer.contexts)

    @property
    def send_queue_bytes(self) -> int:
        """Bytes that wait in this process for the client."""
        return self._writer.queued_bytes

    @property
    def idle_since(self) -> float | None:
        """`time.monotonic()` of the end of its last context; None while it has one."""
        return None if self.has_contexts else self._last_end_at

    def close(self, code: int, reason: str) -> None:
        """Close the socket when the answers that wait have been sent."""
        self._writer.close(code, reason)

    def displace(self) -> None:
        """Close the socket at once, for that of another caller."""
        self._log.info("socket_displaced", key_id=self.caller.key_id)
        self._writer.close_now(1013, "all sockets are in use, and this one was idle")

    def _release(self) -> None:
        self._state.sessions.discard(self)
        contexts = list(self._writer.contexts)
        self._log.info("socket_closed", contexts=contexts[:_MAX_LOGGED], cancelled=len(contexts))
        self._writer.abandon()
        self._state.recent_texts.forget(self.caller.owner, self.session_id)

    # Receive.

    async def _read(self) -> None:
        while True:
            event = await self._websocket.receive()
            if event["type"] == "websocket.disconnect":
                return
            data = event.get("text")
            self._receive(event["bytes"] if data is None else data)
            self._close_if_over()
            await self._writer.wait_for_room()
            await asyncio.sleep(0)  # other clients must not wait for one that sends fast

    def _receive(self, data: str | bytes) -> None:
        try:
            messages = self._connection.receive(data)
        except RefusedMessageError as error:
            self._writer.note_error(error, error.context_id)
            self._writer.answer(self._connection.refused(error))
            return
        for message in messages:
            context_id = getattr(message, "context_id", None)
            try:
                self._act(message)
            except VoiceAgentError as error:
                self._writer.refuse(error, context_id)
            except Exception as error:  # one context must not end the others of the socket
                self._fail(message, context_id, VoiceAgentError.wrapping(error))

    def _fail(self, message: Command, context_id: str | None, failure: VoiceAgentError) -> None:
        context = self._writer.contexts.get(context_id or "")
        if context is None or isinstance(message, ContextCut):
            self._writer.refuse(failure, context_id)
        else:
            context.fail(failure)

    # Act, and answer.

    def _act(self, message: Command) -> None:
        contexts = self._writer.contexts
        match message:
            case Answer(data):
                self._writer.answer([data])
            case ContextOpen(context_id=context_id):
                origin = self._origin(message)
                contexts[context_id] = SocketContext(self._writer, message, origin)
            case ContextText() | ContextFlush() | ContextEnd():
                # If the context could not be opened, its `done` has been sent and this is dropped.
                if context := contexts.get(message.context_id):
                    context.feed(message)
            case ContextCancel(context_id=context_id, played_ms=played_ms):
                contexts[context_id].cancel(played_ms)
            case ContextCut(context_id=context_id, played_ms=played_ms):
                cut = self._timed_text(context_id).cut(ms_to_samples(played_ms))
                self._writer.answer(self._connection.cut(context_id, cut))
            case Prepare(voice=voice, language=language, instruct=instruct):
                speech, owner = SpeechOptions(instruct), self.caller.key_id
                options = ContextOptions(voice, language, speech, owner=owner)
                self._state.opener.prepare(self.caller.owner, options)
            case Ping(t=t):
                self._writer.answer(self._connection.pong(t))
            case Close():
                self.close(1000, "as the client asked")
            case SessionUpdate():
                pass  # the connection keeps the defaults

    def _origin(self, message: ContextOpen) -> Origin:
        ids = {"session_id": self.session_id, "context_id": message.context_id}
        given = (message.metadata or {}).get(TRACEPARENT)
        traceparent = given if isinstance(given, str) else self._traceparent
        return Origin(self.caller, self._websocket.scope["path"], ids, traceparent)

    def _timed_text(self, context_id: str) -> TimedText:
        if context_id in self._writer.contexts:
            return self._writer.contexts[context_id].timed_text
        recent = self._state.recent_texts
        timed_text = recent.find(self.caller.owner, self.session_id, context_id)
        if timed_text is None:
            raise InvalidRequestError(
                f"context {context_id!r} cannot be cut any more: it ended more than "
                f"{MEMORY_S:g} s ago, was never opened, or was displaced by newer ones",
                code=ErrorCode.CONTEXT_NOT_FOUND,
            )
        return timed_text

    def _remember(self, context: SocketContext) -> None:
        """Log the end of a context, and keep its text for `cut`, unless it could not be opened."""
        if context.done is not None:
            report = context.done.report
            self._log.info(
                "context_ended",
                context_id=context.context_id,
                reason=context.done.reason,
                chars=report.chars,
                ttfa_s=_rounded(report.ttfa_s),
                audio_s=_rounded(report.audio_samples / SAMPLE_RATE_HZ),
                seconds=_rounded(report.gen_s),
            )
        self._last_end_at = time.monotonic()
        if not context.is_refused:
            place = (self.caller.owner, self.session_id, context.context_id)
            self._state.recent_texts.keep(*place, context.timed_text)
        self._close_if_over()

    def _close_if_over(self) -> None:
        if self._connection.dialect.closing is not None:
            self.close(*self._connection.dialect.closing)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _limits(state: ServerState) -> SessionLimits:
    settings = state.settings
    return SessionLimits(
        max_text_chars=settings.max_text_chars,
        max_contexts=settings.max_contexts,
        context_idle_s=state.synthesizer.limits.context_idle_s,
        max_audio_s=settings.max_audio_s,
        max_lead_s=settings.max_lead_s,
    )


class SocketWriter:
    """Sends what one socket has to send, from one task, until the socket is closed.

    Answers come first. Each context that has something to send gets one message per turn, so that
    contexts share the socket evenly. In a sequential dialect only the oldest context speaks.
    `on_over` is called with each context whose `done` is being sent.
    """

    def __init__(
        self,
        websocket: WebSocket,
        state: ServerState,
        connection: ServerConnection,
        session_id: str,
        *,
        on_over: Callable[[SocketContext], None],
    ) -> None:
        self.contexts: dict[str, SocketContext] = {}  # without `done`, the oldest first
        self.state = state
        self.connection = connection
        self._websocket = websocket
        self._session_id = session_id
        self._log = structlog.get_logger(__name__).bind(session_id=session_id)
        self._is_sequential = connection.dialect.is_sequential
        self._on_over = on_over
        self._refusals_in_a_row = 0
        self._second_began_at = 0.0
        self._lines_in_second = 0
        self._answers: deque[str | bytes | MakeMessages] = deque()
        self._answers_bytes = 0
        self._ready: deque[str] = deque()  # contexts with something to send, each once
        self._closing: tuple[int, str] | None = None
        self._has_work = asyncio.Event()
        self._has_room = asyncio.Event()

    def answer(self, messages: Iterable[str | bytes | MakeMessages]) -> None:
        """Send `messages` before the messages of the contexts."""
        for message in messages:
            self._answers.append(message)
            self._answers_bytes += sys.getsizeof(message)
        self._has_work.set()

    def refuse(
        self,
        error: VoiceAgentError,
        context_id: str | None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Send an error to the client; `metadata` of the context is logged.

        Closes the socket if the client ignores its limits, or its key was revoked.
        """
        self.note_error(error, context_id, metadata)
        self.answer(self.connection.error(error, context_id))
        if error.code is ErrorCode.UNAUTHORIZED:
            self.close(1008, "the key was revoked")
        if error.code is ErrorCode.RATE_LIMITED:
            self._refusals_in_a_row += 1
            if self._refusals_in_a_row >= MAX_REFUSALS:
                self.close(4029, f"{MAX_REFUSALS} messages in a row were over a limit")

    def note_error(
        self,
        error: VoiceAgentError,
        context_id: str | None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Count and log an error that the caller sends to the client."""
        self.state.metrics.errors.labels(error.code).inc()
        log_if_unexpected(error, session_id=self._session_id, context_id=context_id)
        if self._may_log():
            self._log.info(
                "message_refused", context_id=context_id, code=error.code.value, metadata=metadata
            )

    def _may_log(self) -> bool:
        """Whether a line may be logged: no limit of a key counts messages that are refused."""
        if time.monotonic() - self._second_began_at >= 1:
            self._second_began_at, self._lines_in_second = time.monotonic(), 0
        self._lines_in_second += 1
        return self._lines_in_second <= _REFUSED_LINES_PER_S

    def note_accepted(self) -> None:
        """Note that the client was within its limits: the count of refusals starts anew."""
        self._refusals_in_a_row = 0

    def mark_ready(self, context_id: str) -> None:
        """Note that a context has something to send."""
        if context_id not in self._ready:
            self._ready.append(context_id)
        self._has_work.set()

    def close(self, code: int, reason: str) -> None:
        """Close the socket when the answers that wait have been sent."""
        self._closing = (code, reason)
        self._has_work.set()

    def abandon(self) -> None:
        """Abandon all contexts; the socket is over."""
        for context in self.contexts.values():
            context.abandon()
        self.contexts.clear()
        self._on_over = lambda _: None  # the session, which holds this object

    def close_now(self, code: int, reason: str) -> None:
        """Close without waiting for a client that may not read."""
        self._websocket.scope["extensions"]["voiceagent_tts.close_now"](code, reason)

    @property
    def queued_bytes(self) -> int:
        """Bytes of audio and messages that wait to be sent, or for the client to read them."""
        of_contexts = sum(each.queued_bytes for each in self.contexts.values())
        buffered_bytes = self._websocket.scope["extensions"]["voiceagent_tts.buffered_bytes"]()
        return buffered_bytes + self._answers_bytes + of_contexts

    async def wait_for_room(self) -> None:
        """Wait while too much is unsent: the client does not read it."""
        while self._is_full:
            self._has_room.clear()
            await self._has_room.wait()

    @property
    def _is_full(self) -> bool:
        """Whether the answers, or the contexts that were cancelled and wait, are too many."""
        most_contexts = 2 * self.state.settings.max_contexts
        return self._answers_bytes > _MAX_ANSWERS_BYTES or len(self.contexts) > most_contexts

    async def run(self) -> None:
        """Send until the socket is closed.

        Raises:
            WebSocketDisconnect: the client left, or did not read and was closed with 4008.
        """
        while True:
            self._has_work.clear()
            while self._answers or (self._ready and self._closing is None):
                outgoing = self._next_answer() if self._answers else self._next_of_contexts()
                if outgoing is not None:
                    await self._send(outgoing)
                    if self._answers or self._ready:
                        await asyncio.sleep(0)  # other sockets must not wait for a fast reader
            if self._closing is not None:
                await self._websocket.close(*self._closing)
                return
            await self._has_work.wait()

    def _next_answer(self) -> Outgoing:
        answer = self._answers.popleft()
        self._answers_bytes -= sys.getsizeof(answer)
        self._has_room.set()
        return Outgoing([answer])

    def _next_of_contexts(self) -> Outgoing | None:
        context_id = self._ready.popleft()
        context = self.contexts.get(context_id)
        if context is None or not self._may_speak(context_id):
            return None
        outgoing = context.next_message()
        if context.done is not None:
            self.remove(context_id)
        elif outgoing is not None:
            self.mark_ready(context_id)
        return outgoing

    def remove(self, context_id: str) -> None:
        """Remove a context whose `done` is being sent."""
        if context := self.contexts.pop(context_id, None):
            self._on_over(context)
            self._has_room.set()
        if self._is_sequential and self.contexts:
            self.mark_ready(next(iter(self.contexts)))

    def _may_speak(self, context_id: str) -> bool:
        return not self._is_sequential or context_id == next(iter(self.contexts))

    async def _send(self, outgoing: Outgoing) -> None:
        for message in outgoing.messages:
            for each in await self._made(message) if callable(message) else [message]:
                await self._send_one(each)
        outgoing.on_sent()

    async def _made(self, make: MakeMessages) -> list[str]:
        from voiceagent_tts.server.encoding import STREAMS, computed  # for dialects that compress

        return await computed(STREAMS, caller_of(self._websocket.scope).owner, make)

    async def _send_one(self, message: str | bytes) -> None:
        try:
            async with asyncio.timeout(SLOW_CONSUMER_S):
                if isinstance(message, str):
                    await self._websocket.send_text(message)
                else:
                    await self._websocket.send_bytes(message)
        except TimeoutError:
            self.state.metrics.slow_consumers.inc()
            self._log.warning("slow_consumer")
            self.close_now(4008, "slow consumer: nothing was read")
            raise WebSocketDisconnect(4008) from None


def add_socket(app: FastAPI, path: str, serve: Callable[..., Awaitable[None]]) -> None:
    """Add a WebSocket path; a plain GET, which a browser sends, is answered with a hint."""
    app.websocket(path)(serve)

    @app.get(path, include_in_schema=False)
    async def not_upgraded(request: Request) -> Response:
        scheme = "wss" if request.url.is_secure else "ws"
        raise InvalidRequestError(
            f"expected a WebSocket handshake on {request.url.path}, got a plain GET; connect to "
            f"{scheme}://{request.url.netloc}{request.url.path}, or POST to /v1/audio/speech",
            code=ErrorCode.UPGRADE_REQUIRED,
        )


def refuse_other_sockets(app: FastAPI) -> None:
    """Answer 404 on every other path; Starlette answers 403, which clients take for a bad key."""

    @app.websocket("/{path:path}")
    async def unknown(websocket: WebSocket, path: str) -> None:
        await refuse_socket(websocket, refused_request(HTTPException(404)))


async def serve_socket(
    state: ServerState,
    websocket: WebSocket,
    dialect: Callable[[Caller], Dialect],
    query_key: str | None = None,
) -> None:
    """Serve a socket to its end, or refuse it.

    Args:
        state: what all routes share.
        websocket: not yet accepted.
        dialect: returns the protocol of a client whose key has been checked, or raises
            `InvalidRequestError` for a mistake in its address.
        query_key: a key from elsewhere than the headers.
    """
    try:
        spoken = dialect(auth.check(state, websocket.scope, query_key))
        await websocket.receive()  # the handshake, when it is its turn
        if state.is_draining:
            raise draining_error()
        state.make_room(caller_of(websocket.scope))
    except VoiceAgentError as error:
        await refuse_socket(websocket, error)
        return
    await Session(state, websocket, spoken).run()


async def refuse_socket(websocket: WebSocket, error: VoiceAgentError) -> None:
    """Refuse a socket before it is accepted."""
    answer = error_response(websocket.scope, error)
    answer.headers["X-Request-Id"] = request_id_of(websocket.scope)
    log_request(websocket.scope, answer.status_code)
    await websocket.send_denial_response(answer)
