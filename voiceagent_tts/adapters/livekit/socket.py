"""`tts.v1` over aiohttp, which LiveKit brings: one socket, many contexts, two tasks.

The reader gives each context's events to its inbox; the writer is the only one that sends, so that
nobody waits to say something, least of all a reply that is being cancelled. What may be said when
is decided by `protocol.ClientConnection`. This module knows no agent framework.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Unpack

import aiohttp

from voiceagent_tts.client import CLOSE_TIMEOUT_S, MAX_SERVER_MESSAGE_BYTES, authorization
from voiceagent_tts.errors import ConnectionLostError, VoiceAgentError
from voiceagent_tts.protocol.client_connection import (
    ClientConnection,
    ClientEvent,
    ContextRecord,
)
from voiceagent_tts.protocol.messages import (
    CLOSE_CODES,
    SUBPROTOCOL,
    DoneMessage,
    DrainingMessage,
    ErrorMessage,
    OpenOptions,
    ReadyMessage,
)
from voiceagent_tts.protocol.refusals import ProtocolError

Inbox = Callable[[ClientEvent], None]

_DATA = (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY)

_log = logging.getLogger("livekit.plugins.voiceagent")


class Socket:
    """One open socket, served until it closes.

    Args:
        websocket: open, its handshake done.
        connection: has received `ready`.
        ready: what the server said of itself.
    """

    def __init__(
        self,
        websocket: aiohttp.ClientWebSocketResponse,
        connection: ClientConnection,
        ready: ReadyMessage,
    ) -> None:
        self.connection = connection
        self.ready = ready
        self._websocket = websocket
        self._inboxes: dict[str, Inbox] = {}
        self._outbox: asyncio.Queue[str | None] = asyncio.Queue()
        self._lost: ConnectionLostError | None = None
        self._refusal = ""
        self._on_unusable: Callable[[Socket], None] = lambda _: None
        self._serving: asyncio.Task[None] | None = None
        self.received_at = time.monotonic()
        """When the server last sent anything."""

    @property
    def is_usable(self) -> bool:
        """Whether contexts can be opened here."""
        return self._lost is None and not self.connection.is_draining

    @property
    def is_lost(self) -> bool:
        """Whether the socket has closed."""
        return self._lost is not None

    def start(self, on_unusable: Callable[["Socket"], None]) -> None:
        """Serve the socket; `on_unusable` is called when it drains, and when it is lost."""
        self._on_unusable = on_unusable
        self._serving = asyncio.create_task(self._serve(), name="voiceagent-socket")

    def open(self, context_id: str, inbox: Inbox, **options: Unpack[OpenOptions]) -> ContextRecord:
        """Open a context whose events go to `inbox`; a loss of the socket comes as an error.

        The server is pinged with it: `received_at` then tells a busy server from a dead connection.

        Raises:
            VoiceAgentError: an option is wrong, or the socket takes no more contexts.
        """
        if self._lost is not None:
            raise self._lost
        self.send(self.connection.open(context_id, **options))
        self._outbox.put_nowait(None)
        self._inboxes[context_id] = inbox
        return self.connection.record(context_id)

    def send(self, message: str) -> None:
        """Send in order; what is sent on a lost socket is dropped."""
        self._outbox.put_nowait(message)

    def leave(self, context_id: str) -> None:
        """Cancel a context, unless it has ended; none of its events comes any more."""
        if self._inboxes.pop(context_id, None) is not None:
            self.send(self.connection.cancel(context_id))

    def give_up(self, reason: str) -> None:
        """Treat the socket as lost: it is open, but nobody answers."""
        self._lose(ConnectionLostError(reason))
        if self._serving is not None:
            self._serving.cancel()

    async def aclose(self) -> None:
        """Close, and wait until nothing of the socket runs."""
        await self._websocket.close()
        if self._serving is not None:
            await asyncio.wait({self._serving})

    async def _serve(self) -> None:
        writer = asyncio.create_task(self._write(), name="voiceagent-socket-writer")
        code = aiohttp.WSCloseCode.OK
        try:
            code = await self._read()
        finally:
            writer.cancel()
            self._lose(self._loss())
            await self._websocket.close(code=code)
            await asyncio.wait({writer})

    async def _read(self) -> aiohttp.WSCloseCode:
        """Returns the code to close with."""
        try:
            async for message in self._websocket:
                self.received_at = time.monotonic()
                if message.type in _DATA:
                    self._take(self.connection.receive(message.data))
                elif message.type is aiohttp.WSMsgType.PING:
                    await self._websocket.pong(message.data)
                if self.connection.is_draining and not self._inboxes:
                    break
        except ProtocolError as error:
            self._refusal = error.message
            return aiohttp.WSCloseCode.PROTOCOL_ERROR
        return aiohttp.WSCloseCode.OK

    async def _write(self) -> None:
        with suppress(ConnectionError):  # the reader sees the loss
            while True:
                message = await self._outbox.get()
                if message is None:
                    await self._websocket.ping()
                else:
                    await self._websocket.send_str(message)

    def _take(self, event: ClientEvent | None) -> None:
        match event:
            case ErrorMessage(context_id=None):
                self._refusal = event.message
                _log.warning("the server refused a message: %s", event.code)
            case DrainingMessage():
                self._on_unusable(self)
            case _:
                context_id = getattr(event, "context_id", "")
                inbox = self._inboxes.get(context_id)
                if isinstance(event, DoneMessage):
                    self._inboxes.pop(context_id, None)
                if inbox is not None and event is not None:
                    inbox(event)

    def _loss(self) -> ConnectionLostError:
        code = self._websocket.close_code
        meaning = CLOSE_CODES.get(code or 0, "the connection broke")
        cause = f": {self._refusal}" if self._refusal else ""
        return ConnectionLostError(f"the socket closed ({code}, {meaning}){cause}")

    def _lose(self, error: ConnectionLostError) -> None:
        if self._lost is not None:
            return
        self._lost = error
        inboxes, self._inboxes = self._inboxes, {}
        for context_id, inbox in inboxes.items():
            inbox(ErrorMessage.of(error, context_id))
        self._on_unusable(self)


async def open_socket(
    session: aiohttp.ClientSession, url: str, api_key: str | None, heartbeat_s: float
) -> Socket:
    """Connect, and wait for the server's `ready`; bounded by the caller.

    Args:
        session: makes the connection.
        url: of the server's WebSocket.
        api_key: sent as a bearer token.
        heartbeat_s: a ping goes this often, and a pong may take half as long.

    Raises:
        aiohttp.ClientError: no connection, or the server refused the handshake.
        VoiceAgentError: the server takes nobody, speaks another version, or no `tts.v1` at all.
    """
    websocket = await session.ws_connect(
        url,
        protocols=[SUBPROTOCOL],
        headers=authorization(api_key),
        heartbeat=heartbeat_s,
        autoping=False,  # the reader notes the pongs
        compress=0,  # PCM shrinks by 3 % for 100 times the work
        max_msg_size=MAX_SERVER_MESSAGE_BYTES,
        timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT_S),  # pyright: ignore[reportCallIssue]
    )
    try:
        return await _shake_hands(websocket)
    except BaseException:
        await websocket.close()
        raise


async def _shake_hands(websocket: aiohttp.ClientWebSocketResponse) -> Socket:
    connection = ClientConnection()
    message = await websocket.receive()
    if message.type not in _DATA:
        code = websocket.close_code
        reason = CLOSE_CODES.get(code or 0, "the connection broke")
        raise ConnectionLostError(f"the socket closed before ready ({code}, {reason})")
    match connection.receive(message.data):
        case ReadyMessage() as ready:
            return Socket(websocket, connection, ready)
        case ErrorMessage() as refused:
            raise refused.to_error()
        case _:
            raise VoiceAgentError("expected ready as the first message")
