"""One open socket of the client: its handshake, its reader, and the answers to `cut`."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from websockets.asyncio.client import ClientConnection as WebSocket
from websockets.asyncio.client import connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    InvalidURI,
)
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
from voiceagent_tts.protocol.client_connection import ClientConnection, ClientEvent
from voiceagent_tts.protocol.messages import (
    SUBPROTOCOL,
    CutMessage,
    ErrorMessage,
    ReadyMessage,
)
from voiceagent_tts.protocol.socket_router import Inbox, SocketRouter

CLOSE_TIMEOUT_S = 2.0
MAX_SERVER_MESSAGE_BYTES = 8 * 2**20
"""`done` repeats all words of a context: an hour of speech is about 1 MB."""


class ClientSocket:
    """An open socket: sends, matches answers to requests, and reads in its own task.

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
        self.spans = ClientSpans()
        """The traces of its contexts."""
        self._router = router
        self._websocket = websocket
        self._cuts: defaultdict[str, deque[asyncio.Future[Cut]]] = defaultdict(deque)
        self._reader: asyncio.Task[None] | None = None

    @property
    def connection(self) -> ClientConnection:
        """Builds the messages to send."""
        return self._router.connection

    @property
    def is_usable(self) -> bool:
        """Whether a context can be opened on this socket."""
        return self._router.is_usable

    def start(self, on_end: Callable[["ClientSocket"], None]) -> None:
        """Start to read; `on_end` is called when the socket has closed."""
        self._reader = asyncio.create_task(self._read(), name="tts-client-reader")
        self._reader.add_done_callback(lambda _: on_end(self))

    def attach(self, context_id: str, inbox: Inbox) -> None:
        """Call `inbox` with the events of a context."""
        self._router.attach(context_id, inbox)

    async def send(self, message: str) -> None:
        """Send a message.

        Raises:
            ConnectionLostError: the socket is closed.
        """
        try:
            await self._websocket.send(message)
        except ConnectionClosed as error:
            raise self._router.lost or self._loss() from error

    async def ask_cut(self, context_id: str, played_ms: int) -> Cut | None:
        """The server's answer to `cut`; None if the socket is lost.

        Raises:
            InvalidRequestError: `played_ms` is wrong, or the server does not know the context.
            ConnectionLostError: the server does not answer in time.
        """
        message = self.connection.cut(context_id, played_ms)
        answer: asyncio.Future[Cut] = asyncio.get_running_loop().create_future()
        self._cuts[context_id].append(answer)
        try:
            await self.send(message)
            return await answer
        except ConnectionLostError:
            return None
        finally:
            answer.cancel()

    @asynccontextmanager
    async def answering(self, message: str) -> AsyncIterator[None]:
        """Limit the wait for the answer to `message`.

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

    async def aclose(self) -> None:
        """Close the socket, and wait for the end of the reader."""
        await self._websocket.close()
        if self._reader is not None:
            await self._reader

    async def _read(self) -> None:
        try:
            code = await self._read_to_end()
            await self._websocket.close(code)
        finally:
            self._lose()

    async def _read_to_end(self) -> int:
        """Returns the code to close the socket with."""
        try:
            async for data in self._websocket:
                event = self._router.receive(data)
                self.spans.receive(event)
                self._answer_question(event)
                if self._router.is_drained:
                    break
        except VoiceAgentError:
            return 1002
        except ConnectionClosed:
            pass
        return 1000

    def _answer_question(self, event: ClientEvent | None) -> None:
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

    def _loss(self) -> ConnectionLostError:
        return self._router.loss(self._websocket.protocol.close_code)

    def _lose(self) -> None:
        error = self._loss()
        self._router.lose(error)
        self.spans.lose()
        for answer in (future for waiting in self._cuts.values() for future in waiting):
            if not answer.done():
                answer.set_exception(error)
        self._cuts.clear()


async def open_socket(
    url: str, headers: dict[str, str], connect_timeout_s: float, answer_timeout_s: float
) -> ClientSocket:
    """Connect once, and wait for the server's `ready`.

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
                max_size=MAX_SERVER_MESSAGE_BYTES,
            )
            return await _shake_hands(websocket, answer_timeout_s)
    except InvalidStatus as error:
        raise _rejection(error.response) from error
    except (InvalidHandshake, InvalidURI) as error:
        sentence = f"{address} is no {SUBPROTOCOL} server: {type(error).__name__}"
        if isinstance(error, InvalidMessage) and url.startswith("ws:"):
            sentence += "; a server with TLS has an address that begins with wss://"
        raise InvalidRequestError(sentence, code=ErrorCode.NOT_FOUND) from error
    except (OSError, TimeoutError, ConnectionClosed) as error:
        raise ConnectionLostError(connection_problem(address, error)) from error


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
