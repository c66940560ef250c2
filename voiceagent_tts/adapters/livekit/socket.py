"""`Socket`: `tts.v1` over aiohttp, which LiveKit brings; one socket that many contexts share.

Two tasks serve it. The reader passes each context's events to its inbox (`protocol.SocketRouter`);
only the writer sends, so that no reply waits to send, and a cancel is never delayed. This module
depends on no agent framework.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Unpack

import aiohttp

from voiceagent_tts.client import CLOSE_TIMEOUT_S, MAX_SERVER_MESSAGE_BYTES
from voiceagent_tts.client.spans import ClientSpans
from voiceagent_tts.errors import ConnectionLostError
from voiceagent_tts.protocol.client_connection import (
    ClientConnection,
    ClientEvent,
    ContextRecord,
)
from voiceagent_tts.protocol.messages import (
    CLOSE_CODES,
    SUBPROTOCOL,
    DrainingMessage,
    ErrorMessage,
    OpenOptions,
    ReadyMessage,
    WarningMessage,
)
from voiceagent_tts.protocol.refusals import ProtocolError
from voiceagent_tts.protocol.socket_router import ContextEvent, SocketRouter

Inbox = Callable[[ClientEvent], None]

_DATA = (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY)

_log = logging.getLogger("livekit.plugins.voiceagent")


class Socket:
    """An open socket, served until it closes.

    Args:
        websocket: open, its handshake done.
        router: has received `ready`.
        ready: what the server reported about itself.
    """

    def __init__(
        self, websocket: aiohttp.ClientWebSocketResponse, router: SocketRouter, ready: ReadyMessage
    ) -> None:
        self.ready = ready
        self.received_at = time.monotonic()
        """When the server last sent anything."""
        self._router = router
        self._spans = ClientSpans()
        self._websocket = websocket
        self._outbox: asyncio.Queue[str | None] = asyncio.Queue()  # None is a ping
        self._on_unusable: Callable[[Socket], None] = lambda _: None
        self._serving: asyncio.Task[None] | None = None
        self._warned: set[str] = set()  # codes of the warnings that were logged

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

    def start(self, on_unusable: Callable[["Socket"], None]) -> None:
        """Serve the socket; `on_unusable` is called when the server drains, and on the loss."""
        self._on_unusable = on_unusable
        self._serving = asyncio.create_task(self._serve(), name="voiceagent-socket")

    def open(self, context_id: str, inbox: Inbox, **options: Unpack[OpenOptions]) -> ContextRecord:
        """Open a context and pass its events to `inbox`; a loss of the socket arrives as an error.

        A ping goes with it: `received_at` then distinguishes a busy server from a dead connection.

        Raises:
            VoiceAgentError: an option is wrong, or the socket accepts no more contexts.
        """
        if self._router.lost is not None:
            raise self._router.lost
        metadata = self._spans.open(context_id)
        self.send(self.connection.open(context_id, metadata=metadata, **options))
        self._outbox.put_nowait(None)

        def receive(event: ContextEvent) -> None:
            is_loss = isinstance(event, ConnectionLostError)
            inbox(ErrorMessage.of(event, context_id) if is_loss else event)

        self._router.attach(context_id, receive)
        return self.connection.record(context_id)

    def send(self, message: str) -> None:
        """Send in order; a message for a lost socket is dropped."""
        self._outbox.put_nowait(message)

    def abandon(self, context_id: str) -> None:
        """Cancel a context unless it has ended, and stop passing on its events."""
        if self._router.detach(context_id):
            self.send(self.connection.cancel(context_id))

    def give_up(self, reason: str) -> None:
        """Treat the socket as lost, because the server does not answer on it."""
        self._lose(ConnectionLostError(reason))
        if self._serving is not None:
            self._serving.cancel()

    async def aclose(self) -> None:
        """Close the socket, and wait until its tasks have ended."""
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
            self._lose(self._router.loss(self._websocket.close_code))
            await self._websocket.close(code=code)
            await asyncio.wait({writer})

    async def _read(self) -> aiohttp.WSCloseCode:
        """Read to the end of the socket; returns the code to close it with."""
        try:
            async for message in self._websocket:
                self.received_at = time.monotonic()
                if message.type in _DATA:
                    self._receive(message.data)
                elif message.type is aiohttp.WSMsgType.PING:
                    await self._websocket.pong(message.data)
                if self._router.is_drained:
                    break
        except ProtocolError:
            return aiohttp.WSCloseCode.PROTOCOL_ERROR
        return aiohttp.WSCloseCode.OK

    def _receive(self, data: str | bytes) -> None:
        event = self._router.receive(data)
        self._spans.receive(event)
        match event:
            case ErrorMessage(context_id=None, code=code):
                _log.warning("the server refused a message: %s", code)
            case WarningMessage(code=code, message=message) if code not in self._warned:
                self._warned.add(code)  # it repeats in every context
                _log.warning("%s: %s", code, message)
            case DrainingMessage():
                self._on_unusable(self)
            case _:
                pass

    async def _write(self) -> None:
        with suppress(ConnectionError):  # the reader handles the loss
            while True:
                message = await self._outbox.get()
                if message is None:
                    await self._websocket.ping()
                else:
                    await self._websocket.send_str(message)

    def _lose(self, error: ConnectionLostError) -> None:
        self._spans.lose()
        if self._router.lose(error):
            self._on_unusable(self)


async def open_socket(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str], heartbeat_s: float
) -> Socket:
    """Connect, and wait for the server's `ready`; the caller sets the timeout.

    Args:
        session: HTTP session that makes the connection.
        url: URL of the server's WebSocket.
        headers: HTTP headers of the handshake.
        heartbeat_s: interval of the pings; a pong may take half as long.

    Raises:
        aiohttp.ClientError: no connection, or the server refused the handshake.
        VoiceAgentError: the server accepts no sockets now, speaks another version, or is no
            `tts.v1` server.
    """
    websocket = await session.ws_connect(
        url,
        protocols=[SUBPROTOCOL],
        headers=headers,
        heartbeat=heartbeat_s,
        autoping=False,  # the reader notes the time of each pong
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
    message = await websocket.receive()
    if message.type not in _DATA:
        code = websocket.close_code
        reason = CLOSE_CODES.get(code or 0, "the connection broke")
        raise ConnectionLostError(f"the socket closed before ready ({code}, {reason})")
    router = SocketRouter()
    return Socket(websocket, router, router.handshake(message.data))
