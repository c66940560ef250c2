"""`ClientSocket`: `tts.v1` over one socket, for every client in Python: tools and adapters."""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Unpack

from websockets.asyncio.client import ClientConnection as WebSocket
from websockets.asyncio.client import connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    InvalidURI,
)
from websockets.frames import CloseCode
from websockets.http11 import Response
from websockets.typing import Subprotocol

from voiceagent_tts.client.address import connection_problem, public_address, server_message
from voiceagent_tts.client.spans import ClientSpans
from voiceagent_tts.core import Cut
from voiceagent_tts.errors import (
    ConnectionLostError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    UnauthorizedError,
    VoiceAgentError,
)
from voiceagent_tts.protocol.client_connection import (
    ClientConnection,
    ClientEvent,
    ContextRecord,
)
from voiceagent_tts.protocol.messages import (
    SUBPROTOCOL,
    CutMessage,
    DrainingMessage,
    ErrorMessage,
    OpenOptions,
    ReadyMessage,
)
from voiceagent_tts.protocol.socket_router import Inbox, SocketRouter

CLOSE_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 5.0
HEARTBEAT_S = 20.0
MAX_SERVER_MESSAGE_BYTES = 8 * 2**20
"""`done` repeats all words of a context: an hour of speech is about 1 MB."""


class ClientSocket:
    """An open socket that many contexts share, served until it closes.

    Two tasks serve it. The reader passes each context's events to its inbox
    (`protocol.SocketRouter`); the writer alone sends, so that no context waits to send, least of
    all one that is being cancelled.

    Args:
        websocket: a WebSocket whose handshake is done.
        router: has received `ready`.
        ready: what the server reported about itself.
        answer_timeout_s: maximum wait for the answer to `cancel` and `cut`.
    """

    def __init__(
        self,
        websocket: WebSocket,
        router: SocketRouter,
        ready: ReadyMessage,
        answer_timeout_s: float,
    ) -> None:
        self.ready = ready
        self.answer_timeout_s = answer_timeout_s
        self.received_at = time.monotonic()
        """When the server last sent anything."""
        self._spans = ClientSpans()
        self._router = router
        self._websocket = websocket
        self._outbox: asyncio.Queue[str | None] = asyncio.Queue()  # None is a ping
        self._cuts: defaultdict[str, deque[asyncio.Future[Cut]]] = defaultdict(deque)
        self._on_unusable: Callable[[ClientSocket], None] = lambda _: None
        self._on_event: Callable[[ClientEvent], None] = lambda _: None
        self._serving: asyncio.Task[None] | None = None

    @property
    def connection(self) -> ClientConnection:
        """Builds the messages to send."""
        return self._router.connection

    @property
    def is_usable(self) -> bool:
        """Whether a context can be opened on this socket."""
        return self._router.is_usable

    @property
    def is_lost(self) -> bool:
        """Whether the socket has closed."""
        return self._router.lost is not None

    def start(
        self,
        on_unusable: Callable[["ClientSocket"], None],
        on_event: Callable[[ClientEvent], None] = lambda _: None,
    ) -> None:
        """Serve the socket.

        Args:
            on_unusable: called when the server drains, and on the loss.
            on_event: called with each event, of any context or of none.
        """
        self._on_unusable, self._on_event = on_unusable, on_event
        self._serving = asyncio.create_task(self._serve(), name="tts-client-socket")

    def open(
        self,
        context_id: str,
        *,
        metadata: dict[str, Any] | None = None,
        **options: Unpack[OpenOptions],
    ) -> ContextRecord:
        """Open a context.

        A ping goes with it: `received_at` then distinguishes a busy server from a dead connection.

        Raises:
            VoiceAgentError: an option is wrong, or the socket accepts no more contexts.
        """
        if self._router.lost is not None:
            raise self._router.lost
        metadata = self._spans.open(context_id, metadata)
        self.send(self.connection.open(context_id, metadata=metadata, **options))
        self._outbox.put_nowait(None)
        return self.connection.record(context_id)

    def attach(self, context_id: str, inbox: Inbox) -> None:
        """Call `inbox` with the events of a context; a loss of the socket is one of them."""
        self._router.attach(context_id, inbox)

    def abandon(self, context_id: str) -> None:
        """Cancel a context, unless it has ended, and stop passing its events on."""
        if self._router.detach(context_id):
            self.send(self.connection.cancel(context_id))

    def send(self, message: str) -> None:
        """Send in order and without waiting; a message for a lost socket is dropped."""
        self._outbox.put_nowait(message)

    async def ask_cut(self, context_id: str, played_ms: int) -> Cut | None:
        """The server's answer to `cut`; None if the socket is lost.

        Raises:
            InvalidRequestError: `played_ms` is wrong, or the server does not know the context.
            ConnectionLostError: the server does not answer in time.
        """
        message = self.connection.cut(context_id, played_ms)
        if self.is_lost:
            return None
        answer: asyncio.Future[Cut] = asyncio.get_running_loop().create_future()
        self._cuts[context_id].append(answer)
        self.send(message)
        try:
            return await answer
        except ConnectionLostError:
            return None
        finally:
            answer.cancel()

    @asynccontextmanager
    async def answering(self, message: str) -> AsyncIterator[None]:
        """Bound the wait for the answer to `message`.

        Raises:
            ConnectionLostError: the server does not answer in time.
        """
        try:
            async with asyncio.timeout(self.answer_timeout_s):
                yield
        except TimeoutError:
            raise ConnectionLostError(
                f"no answer to {message} within {self.answer_timeout_s} s"
            ) from None

    def give_up(self, reason: str) -> None:
        """Treat the socket as lost, because the server does not answer on it."""
        self._lose(ConnectionLostError(reason))
        self._websocket.transport.abort()

    async def aclose(self) -> None:
        """Close the socket, and wait until its tasks have ended."""
        await self._websocket.close()
        if self._serving is not None:
            await asyncio.wait({self._serving})

    async def _serve(self) -> None:
        writer = asyncio.create_task(self._write(), name="tts-client-writer")
        code = CloseCode.INTERNAL_ERROR
        try:
            code = await self._read()
        except asyncio.CancelledError:
            self._on_unusable = lambda _: None  # the program ends, and nothing replaces the socket
            raise
        finally:
            writer.cancel()
            self._lose(self._router.loss(self._websocket.protocol.close_code))
            await self._websocket.close(code)
            await asyncio.wait({writer})

    async def _read(self) -> CloseCode:
        """Read to the end of the socket; returns the code to close it with."""
        try:
            async for data in self._websocket:
                self._note_sign_of_life()
                self._receive(data)
                if self._router.is_drained:
                    break
        except VoiceAgentError:
            return CloseCode.PROTOCOL_ERROR
        except ConnectionClosed:
            pass
        return CloseCode.NORMAL_CLOSURE

    def _receive(self, data: str | bytes) -> None:
        event = self._router.receive(data)
        if event is None:
            return
        self._spans.receive(event)
        self._answer_question(event)
        self._on_event(event)
        if isinstance(event, DrainingMessage):
            self._on_unusable(self)

    async def _write(self) -> None:
        with suppress(ConnectionClosed):  # the reader handles the loss
            while True:
                message = await self._outbox.get()
                if message is not None:
                    await self._websocket.send(message)
                else:
                    pong = asyncio.ensure_future(await self._websocket.ping())
                    pong.add_done_callback(self._note_sign_of_life)

    def _note_sign_of_life(self, pong: "asyncio.Future[float] | None" = None) -> None:
        if pong is None or (not pong.cancelled() and pong.exception() is None):
            self.received_at = time.monotonic()

    def _answer_question(self, event: ClientEvent) -> None:
        match event:
            case ErrorMessage(code=ErrorCode.CONTEXT_NOT_FOUND, context_id=str(context_id)):
                self._answer_cut(context_id, event.to_error())
            case CutMessage():
                self._answer_cut(event.context_id, event.to_cut())
            case _:
                pass

    def _answer_cut(self, context_id: str, answer: Cut | VoiceAgentError) -> None:
        waiting = self._cuts[context_id]
        future = waiting.popleft() if waiting else None
        if not waiting:
            del self._cuts[context_id]
        if future is None or future.done():
            return
        if isinstance(answer, Cut):
            future.set_result(answer)
        else:
            future.set_exception(answer)

    def _lose(self, error: ConnectionLostError) -> None:
        self._spans.lose()
        for answer in (future for waiting in self._cuts.values() for future in waiting):
            if not answer.done():
                answer.set_exception(error)
        self._cuts.clear()
        if self._router.lose(error):
            self._on_unusable(self)


async def open_socket(
    url: str,
    headers: Mapping[str, str],
    *,
    connect_timeout_s: float | None = None,
    answer_timeout_s: float = ANSWER_TIMEOUT_S,
    heartbeat_s: float = HEARTBEAT_S,
) -> ClientSocket:
    """Connect once, and wait for the server's `ready`.

    Args:
        url: URL of the server's WebSocket.
        headers: HTTP headers of the handshake.
        connect_timeout_s: maximum time up to `ready`; None if the caller sets one.
        answer_timeout_s: maximum wait for the answer to `cancel` and `cut`.
        heartbeat_s: interval of the pings; a pong may take half as long. 0 for none.

    Raises:
        UnauthorizedError: the server refused the key.
        ConnectionLostError: the server cannot be reached.
        OverloadedError: the server accepts no sockets now.
        VoiceAgentError: the server speaks another version (`version_mismatch`), or is no `tts.v1`
            server.
    """
    address = public_address(url)
    try:
        async with asyncio.timeout(connect_timeout_s):
            websocket = await connect(
                url,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                additional_headers=headers,
                compression=None,  # PCM shrinks by 3 % for 100 times the work
                open_timeout=None,  # `connect_timeout_s` includes the handshake of `tts.v1`
                close_timeout=CLOSE_TIMEOUT_S,
                ping_interval=heartbeat_s or None,
                ping_timeout=heartbeat_s / 2 or None,
                max_size=MAX_SERVER_MESSAGE_BYTES,
            )
            return await _shake_hands(websocket, answer_timeout_s)
    except InvalidStatus as error:
        raise _rejection(error.response) from error
    except (InvalidHandshake, InvalidURI) as error:
        if _has_no_answer(error):
            raise ConnectionLostError(f"no connection to {address}: no answer") from error
        sentence = f"{address} is no {SUBPROTOCOL} server: {type(error).__name__}"
        if isinstance(error, InvalidMessage) and url.startswith("ws:"):
            sentence += "; a server with TLS has an address that begins with wss://"
        raise InvalidRequestError(sentence, code=ErrorCode.NOT_FOUND) from error
    except (OSError, TimeoutError, ConnectionClosed) as error:
        raise ConnectionLostError(connection_problem(address, error)) from error


def _has_no_answer(error: InvalidHandshake | InvalidURI) -> bool:
    """Whether the connection ended without one byte, as that of a server that stops does.

    A server with TLS answers with some.
    """
    reason = error.__cause__
    return isinstance(reason, EOFError) and "after 0 bytes" in str(reason.__cause__)


async def _shake_hands(websocket: WebSocket, answer_timeout_s: float) -> ClientSocket:
    router = SocketRouter()
    try:
        ready = router.handshake(await websocket.recv())
    except BaseException:
        await websocket.close()
        raise
    return ClientSocket(websocket, router, ready, answer_timeout_s)


def _rejection(response: Response) -> VoiceAgentError:
    status = response.status_code
    sentence = f"the server answered the handshake with HTTP {status}"
    match status:
        case 401:
            return UnauthorizedError(f"{sentence}: the API key is missing or wrong")
        case 403:
            reason = server_message(response.body)
            told = sentence if reason is None else f"{sentence}: {reason}"
            return UnauthorizedError(told, code=ErrorCode.FORBIDDEN)
        case 404:
            return InvalidRequestError(
                f"{sentence}: expected a {SUBPROTOCOL} server there; try the URL without its path",
                code=ErrorCode.NOT_FOUND,
            )
        case 429:
            return OverloadedError(sentence, code=ErrorCode.RATE_LIMITED)
        case _ if status >= 500:
            return OverloadedError(sentence)
        case _:
            return InvalidRequestError(sentence, code=ErrorCode.NOT_FOUND)
