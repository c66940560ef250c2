"""`Connection`: a `tts.v1` socket for the life of a Pipecat pipeline.

Connects before the first turn, and again when the socket is lost, the server drains, or a turn asks
for it after all attempts have failed; a draining server finishes what it speaks.
"""

import asyncio
import contextlib
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from loguru import logger

from voiceagent_tts.client import ClientSocket
from voiceagent_tts.client.transport import connect_websocket
from voiceagent_tts.errors import ConnectionLostError
from voiceagent_tts.protocol.client_connection import ClientEvent

_READY_TIMEOUT_S = 5.0
_ACQUIRE_TIMEOUT_S = 1.0
_SHORT_CONNECTION_S = 1.0
_RECONNECT_WAIT_S = 0.25


@dataclass(frozen=True, slots=True)
class ConnectionHooks:
    """Callbacks of the service that the connection belongs to.

    Attributes:
        may_connect: whether another attempt makes sense.
        on_disconnected: called when a socket is lost or left.
        on_failure: called with the error of an attempt, and for how long attempts have failed; a
            draining server may still be speaking.
    """

    may_connect: Callable[[], bool]
    on_connected: Callable[[ClientSocket], Awaitable[None]]
    on_disconnected: Callable[[], Awaitable[None]]
    on_failure: Callable[[Exception, float], Awaitable[None]]
    on_event: Callable[[ClientEvent], None]


class Connection:
    """Keeps a socket open.

    Args:
        owner: name of the service, for the log.
        attempts: to connect in a row, 0.25 s apart; 0 to connect only when asked.
    """

    def __init__(
        self,
        owner: str,
        url: str,
        headers: Mapping[str, str],
        attempts: int,
        hooks: ConnectionHooks,
    ) -> None:
        self.socket: ClientSocket | None = None
        """The open socket."""
        self.is_closed = False
        """Whether the service has disconnected; only the next pipeline connects again."""
        self._owner = owner
        self._url = url
        self._headers = headers
        self._attempts = attempts
        self._hooks = hooks
        self._sockets: weakref.WeakSet[ClientSocket] = weakref.WeakSet()  # also those that drain
        self._is_ready = asyncio.Event()  # whether contexts can be opened
        self._is_unusable = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._has_given_up = False  # and logged it

    async def connect(self) -> None:
        """Try once to connect; all further attempts follow in the background."""
        self.is_closed = False
        await self._try_to_connect(time.monotonic())
        self._begin_to_keep(self._attempts)

    async def acquire(self) -> ClientSocket:
        """Return the open socket; after all attempts to connect have failed, try again.

        Raises:
            ConnectionLostError: there is none after a moment.
        """
        if not self.is_closed and (self._keeping is None or self._keeping.done()):
            self._begin_to_keep(max(1, self._attempts))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ACQUIRE_TIMEOUT_S):
                await self._is_ready.wait()
                if self.socket is not None:
                    return self.socket
        raise ConnectionLostError("no connection to the server")

    def _begin_to_keep(self, attempts: int) -> None:
        self._keeping = asyncio.create_task(self._keep(attempts), name="tts-connection")

    async def _keep(self, attempts: int) -> None:
        """Stay connected until all attempts in a row have failed; `attempts` are the first ones."""
        while self.socket is not None or await self._connect(attempts):
            connected_at, attempts = time.monotonic(), self._attempts
            await self._is_unusable.wait()
            self._log_why_it_leaves()
            await self._leave()
            if time.monotonic() - connected_at < _SHORT_CONNECTION_S:
                await asyncio.sleep(_RECONNECT_WAIT_S)

    async def aclose(self) -> None:
        """Close the sockets until `connect` is called; idempotent."""
        self.is_closed = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        sockets = list(self._sockets)
        await self._leave()
        await asyncio.gather(*(socket.aclose() for socket in sockets))

    async def _leave(self) -> None:
        self._is_ready.clear()
        if self.socket is not None:
            self.socket = None
            await self._hooks.on_disconnected()

    def _log_why_it_leaves(self) -> None:
        socket = self.socket
        reason = socket.lost if socket and not socket.connection.is_draining else "it drains"
        logger.info(f"{self._owner}: left the server: {reason}")

    async def _connect(self, attempts: int) -> bool:
        began_at = time.monotonic()
        for _ in range(attempts):
            if not self._hooks.may_connect():
                return False
            if await self._try_to_connect(began_at):
                return True
            await asyncio.sleep(_RECONNECT_WAIT_S)
        if not self._has_given_up:
            self._has_given_up = True
            logger.warning(
                f"{self._owner}: no connection to the server after {attempts} attempts; "
                "the next turn connects"
            )
        return False

    async def _try_to_connect(self, began_at: float) -> bool:
        try:
            socket = await self._open()
        except Exception as error:  # of the network, of a proxy, of another server
            await self._hooks.on_failure(error, time.monotonic() - began_at)
            return False
        self.socket, self._has_given_up = socket, False
        self._sockets.add(socket)
        self._is_unusable.clear()
        self._is_ready.set()
        await self._hooks.on_connected(socket)
        return True

    async def _open(self) -> ClientSocket:
        transport = await connect_websocket(self._url, self._headers)
        async with asyncio.timeout(_READY_TIMEOUT_S):
            return await ClientSocket.over(transport, self._note_unusable, self._hooks.on_event)

    def _note_unusable(self, socket: ClientSocket) -> None:
        if socket is self.socket:
            self._is_ready.clear()
            self._is_unusable.set()
