"""`Connection`: a `tts.v1` socket for the life of a Pipecat pipeline.

Connects before the first turn, and again when the socket is lost or the server drains; a draining
server finishes what it speaks. This module depends on no turn and no pipeline.
"""

import asyncio
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from loguru import logger

from voiceagent_tts.client import ClientSocket
from voiceagent_tts.client.transport import connect_websocket
from voiceagent_tts.protocol.client_connection import ClientEvent

_READY_TIMEOUT_S = 5.0
_SHORT_CONNECTION_S = 1.0
_RECONNECT_WAIT_S = 0.25


@dataclass(frozen=True, slots=True)
class ConnectionHooks:
    """Callbacks of the service that the connection belongs to.

    Attributes:
        may_connect: whether another attempt makes sense.
        on_connected: called with each new socket.
        on_disconnected: called when a socket is lost or left.
        on_failure: called with the error of an attempt, and for how long attempts have failed.
        on_event: called with each event of any socket.
    """

    may_connect: Callable[[], bool]
    on_connected: Callable[[ClientSocket], Awaitable[None]]
    on_disconnected: Callable[[], Awaitable[None]]
    on_failure: Callable[[Exception, float], Awaitable[None]]
    on_event: Callable[[ClientEvent], None]


class Connection:
    """Keeps a socket open.

    Args:
        url: URL of the server's WebSocket.
        headers: HTTP headers of the handshake.
        attempts: to connect in a row, 0.25 s apart.
        hooks: callbacks of the service.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], attempts: int, hooks: ConnectionHooks
    ) -> None:
        self.socket: ClientSocket | None = None
        """The open socket."""
        self.is_ready = asyncio.Event()
        """Whether contexts can be opened."""
        self._url = url
        self._headers = headers
        self._attempts = attempts
        self._hooks = hooks
        self._sockets: weakref.WeakSet[ClientSocket] = weakref.WeakSet()  # also those that drain
        self._is_unusable = asyncio.Event()

    async def connect(self) -> None:
        """Try once to connect; `keep` tries again."""
        await self._try_to_connect(time.monotonic())

    async def keep(self) -> None:
        """Stay connected until all attempts in a row have failed."""
        while self.socket is not None or await self._connect():
            connected_at = time.monotonic()
            await self._is_unusable.wait()
            await self._leave()
            if time.monotonic() - connected_at < _SHORT_CONNECTION_S:
                await asyncio.sleep(_RECONNECT_WAIT_S)

    async def aclose(self) -> None:
        """Close the sockets; idempotent."""
        sockets = list(self._sockets)
        await self._leave()
        await asyncio.gather(*(socket.aclose() for socket in sockets))

    async def _leave(self) -> None:
        self.is_ready.clear()
        if self.socket is not None:
            logger.info(self.socket.lost or "left the server")
            self.socket = None
            await self._hooks.on_disconnected()

    async def _connect(self) -> bool:
        began_at = time.monotonic()
        for _ in range(self._attempts):
            if not self._hooks.may_connect():
                return False
            if await self._try_to_connect(began_at):
                return True
            await asyncio.sleep(_RECONNECT_WAIT_S)
        logger.warning(f"no connection to the server after {self._attempts} attempts")
        return False

    async def _try_to_connect(self, began_at: float) -> bool:
        try:
            socket = await self._open()
        except Exception as error:  # of the network, of a proxy, of another server
            await self._hooks.on_failure(error, time.monotonic() - began_at)
            return False
        self.socket = socket
        self._sockets.add(socket)
        self._is_unusable.clear()
        self.is_ready.set()
        await self._hooks.on_connected(socket)
        return True

    async def _open(self) -> ClientSocket:
        transport = await connect_websocket(self._url, self._headers)
        async with asyncio.timeout(_READY_TIMEOUT_S):
            return await ClientSocket.over(transport, self._note_unusable, self._hooks.on_event)

    def _note_unusable(self, socket: ClientSocket) -> None:
        if socket is self.socket:
            self.is_ready.clear()
            self._is_unusable.set()
