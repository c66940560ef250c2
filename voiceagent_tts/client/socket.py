"""`ClientSocket`: one `tts.v1` socket, which the tools and both adapters use alike."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Unpack

from voiceagent_tts.client.spans import ClientSpans
from voiceagent_tts.client.transport import Transport
from voiceagent_tts.core import Cut
from voiceagent_tts.errors import (
    ConnectionLostError,
    ErrorCode,
    InvalidRequestError,
    VoiceAgentError,
)
from voiceagent_tts.protocol.client_connection import (
    CLOSE_CODES,
    ClientConnection,
    ClientEvent,
    ContextRecord,
    Inbox,
    OpenOptions,
    ProtocolError,
    cut_of,
    error_of,
)
from voiceagent_tts.protocol.messages import CutMessage, DoneMessage, ErrorMessage, ReadyMessage

_SEND_TIMEOUT_S = 5.0
"""A server that has not taken a message by then is treated as lost."""
_NORMAL_CLOSURE = 1000
_PROTOCOL_ERROR = 1002


class ClientSocket:
    """An open socket that many contexts share, served until it closes.

    Two tasks serve it. The reader passes each context's events to its inbox; only the writer sends,
    so that no context waits to send, and a cancel is never delayed.

    Args:
        on_unusable: called when the server drains, and on the loss.
        on_event: called with every event, after the inbox of its context.

    Attributes:
        connection: builds the messages to send.
        lost: why the socket has closed; None while it is open.
        received_at: `time.monotonic()` of the server's last message.
    """

    def __init__(
        self,
        transport: Transport,
        connection: ClientConnection,
        ready: ReadyMessage,
        on_unusable: Callable[["ClientSocket"], None],
        on_event: Callable[[ClientEvent], None],
    ) -> None:
        self.ready = ready
        self.connection = connection
        self.lost: ConnectionLostError | None = None
        self.received_at = time.monotonic()
        self._transport = transport
        self._inboxes: dict[str, Inbox] = {}
        self._refusal: VoiceAgentError | None = None  # the last error that names no context
        self._spans = ClientSpans()
        self._outbox: asyncio.Queue[str] = asyncio.Queue()
        self._cuts: list[
            tuple[str, asyncio.Future[Cut | None]]
        ] = []  # asked and not answered, in order
        self._on_unusable = on_unusable
        self._on_event = on_event
        self._serving = asyncio.create_task(self._serve(), name="tts-client-socket")

    @classmethod
    async def over(
        cls,
        transport: Transport,
        on_unusable: Callable[["ClientSocket"], None] = lambda _: None,
        on_event: Callable[[ClientEvent], None] = lambda _: None,
    ) -> "ClientSocket":
        """The socket over `transport`, once the server has sent `ready`; sets no timeout.

        Raises:
            ConnectionLostError: the server has closed the socket.
            VoiceAgentError: the server accepts no sockets now, speaks another version, or is no
                `tts.v1` server.
        """
        connection = ClientConnection()
        try:
            match connection.receive(await transport.receive()):
                case ReadyMessage() as ready:
                    return cls(transport, connection, ready, on_unusable, on_event)
                case ErrorMessage() as refusal:
                    raise error_of(refusal)
                case _:
                    raise ProtocolError("expected ready as the first message")
        except ConnectionError as error:
            loss = _meaning(transport.close_code)
            raise ConnectionLostError(f"no ready from the server: {loss}") from error
        finally:
            if connection.ready is None:
                await transport.close()

    @property
    def is_usable(self) -> bool:
        """Whether a context can be opened on this socket."""
        return self.lost is None and not self.connection.is_draining

    def check_loop(self) -> None:
        """Check that the event loop that runs is the one that serves this socket.

        Raises:
            InvalidRequestError: it is another one; `not_supported`.
        """
        if self.lost is None and asyncio.get_running_loop() is not self._serving.get_loop():
            raise InvalidRequestError(
                "expected a call in the event loop in which this client has connected, got one in "
                "another; try asyncio.run_coroutine_threadsafe, or a client for each loop",
                code=ErrorCode.NOT_SUPPORTED,
            )

    # To the server.

    def open(
        self,
        context_id: str,
        inbox: Inbox,
        *,
        metadata: dict[str, Any] | None = None,
        **options: Unpack[OpenOptions],
    ) -> ContextRecord:
        """Open a context, and call `inbox` with its events up to its end or the socket's loss.

        Raises:
            VoiceAgentError: an option is wrong, or the socket accepts no more contexts.
        """
        if self.lost is not None:
            raise self.lost
        with self._spans.opening(context_id, metadata) as traced:
            self.send(self.connection.open(context_id, metadata=traced, **options))
        self._inboxes[context_id] = inbox
        return self.connection.record(context_id)

    def abandon(self, context_id: str) -> None:
        """Cancel a context unless it has ended, and stop passing on its events."""
        if self._inboxes.pop(context_id, None) is not None:
            self.send(self.connection.cancel(context_id))

    def send(self, message: str) -> None:
        """Send in order and without waiting; a message for a lost socket is dropped."""
        if self.lost is None:
            self._outbox.put_nowait(message)

    async def drain(self) -> None:
        """Wait until the connection has taken every message, or the socket is lost.

        Raises:
            ConnectionLostError: the socket is lost.
        """
        await self._outbox.join()
        if self.lost is not None:
            raise self.lost

    async def ask_cut(self, context_id: str, played_ms: int) -> Cut | None:
        """The server's answer to `cut`; None if the socket is lost.

        Raises:
            InvalidRequestError: `played_ms` is wrong, or the server does not know the context.
        """
        message = self.connection.cut(context_id, played_ms)
        if self.lost is not None:
            return None
        answer: asyncio.Future[Cut | None] = asyncio.get_running_loop().create_future()
        self._cuts.append((context_id, answer))
        self.send(message)
        return await answer

    def give_up(self, reason: str) -> None:
        """Treat the socket as lost, because the server does not answer on it."""
        if self.lost is None:
            self._lose(ConnectionLostError(reason))
            self._serving.cancel()

    def leave(self) -> None:
        """Close the socket soon, from any thread: its owner is gone."""
        loop = self._serving.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(self.give_up, "this socket is no longer used")

    async def aclose(self) -> None:
        """Close the socket, and wait until its tasks have ended."""
        await self._transport.close()
        await asyncio.wait({self._serving})

    # Its tasks.

    async def _serve(self) -> None:
        writer = asyncio.create_task(self._write(), name="tts-client-writer")
        code: int | None = None
        try:
            code = await self._read()
        finally:
            cause = f": {self._refusal.message}" if self._refusal else ""
            self._lose(ConnectionLostError(_meaning(code or self._transport.close_code) + cause))
            writer.cancel()
            await self._transport.close(code or _NORMAL_CLOSURE)
            await asyncio.wait({writer})

    async def _read(self) -> int | None:
        try:
            while self._inboxes or not self.connection.is_draining:
                self._receive(await self._transport.receive())
        except VoiceAgentError as error:
            self._refusal = error
            return _PROTOCOL_ERROR
        except ConnectionError:
            return None
        return _NORMAL_CLOSURE

    async def _write(self) -> None:
        while True:
            message = await self._outbox.get()
            try:
                async with asyncio.timeout(_SEND_TIMEOUT_S):
                    await self._transport.send(message)
            except TimeoutError:
                self.give_up("the server has stopped reading")
            except ConnectionError:
                pass  # the reader handles the loss
            finally:
                self._outbox.task_done()

    def _receive(self, data: str | bytes) -> None:
        self.received_at = time.monotonic()
        was_usable = self.is_usable
        event = self.connection.receive(data)
        if event is None:
            return
        self._pass_on(event)
        self._spans.receive(event)
        self._answer_question(event)
        self._on_event(event)
        if was_usable and not self.is_usable:
            self._on_unusable(self)

    def _pass_on(self, event: ClientEvent) -> None:
        """Pass an event to the inbox of its context."""
        context_id = getattr(event, "context_id", None) or ""
        if isinstance(event, ErrorMessage) and not context_id:
            self._refusal = error_of(event)
        if inbox := self._inboxes.get(context_id):
            if isinstance(event, DoneMessage):
                del self._inboxes[context_id]
            inbox(event)

    def _answer_question(self, event: ClientEvent) -> None:
        match event:
            case ErrorMessage(code=ErrorCode.CONTEXT_NOT_FOUND, context_id=str(context_id)):
                self._answer_cut(context_id, error_of(event))
            case CutMessage():
                self._answer_cut(event.context_id, cut_of(event))
            case _:
                pass

    def _answer_cut(self, context_id: str, answer: Cut | VoiceAgentError | None) -> None:
        question = next((each for each in self._cuts if each[0] == context_id), None)
        if question is None:
            return
        self._cuts.remove(question)
        future = question[1]
        if future.done():
            return
        if isinstance(answer, VoiceAgentError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _lose(self, error: ConnectionLostError) -> None:
        if self.lost is not None:
            return
        self.lost = error
        inboxes, self._inboxes = self._inboxes, {}
        for context_id, inbox in inboxes.items():
            inbox(ErrorMessage.of(error, context_id))
        self._spans.lose()
        for context_id, _ in list(self._cuts):
            self._answer_cut(context_id, None)
        while not self._outbox.empty():
            self._outbox.get_nowait()
            self._outbox.task_done()
        self._on_unusable(self)


def _meaning(close_code: int | None) -> str:
    """A sentence about the end of a socket; None is one without a close code."""
    meaning = CLOSE_CODES.get(close_code or 0, "the connection broke")
    return f"the socket closed ({close_code}, {meaning})"
