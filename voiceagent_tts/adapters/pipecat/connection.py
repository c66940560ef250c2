"""`Connection`: a `tts.v1` socket for the life of a Pipecat pipeline.

Connects before the first turn, and again after a loss or when the server drains; a draining socket
ends what it speaks. Knows no turns and no pipeline.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from loguru import logger

from voiceagent_tts.client import ClientSocket, open_socket
from voiceagent_tts.errors import ConnectionLostError, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientEvent

_CONNECT_TIMEOUT_S = 5.0
_SHORT_CONNECTION_S = 1.0
_RECONNECT_WAIT_S = 0.25


@dataclass(frozen=True, slots=True)
class ConnectionHooks:
    """What the service does for its connection.

    Attributes:
        may_connect: whether another attempt makes sense.
        on_connected: called with each new socket, before a turn may use it.
        on_disconnected: called when a socket is lost, and at the end.
        on_failure: called with the error of each attempt, and when the attempts began.
        on_event: called with each event as it arrives.
        now_s: the current time.
    """

    may_connect: Callable[[], bool]
    on_connected: Callable[[ClientSocket], Awaitable[None]]
    on_disconnected: Callable[[], Awaitable[None]]
    on_failure: Callable[[VoiceAgentError, float], Awaitable[None]]
    on_event: Callable[[ClientEvent], None]
    now_s: Callable[[], float]


class Connection:
    """Keeps a socket open.

    Args:
        url: URL of the server's WebSocket.
        headers: HTTP headers of the handshake.
        attempts: to connect in a row, 0.25 s apart; then `start` is needed.
        hooks: what the service does for it.
    """

    def __init__(
        self, url: str, headers: dict[str, str], attempts: int, hooks: ConnectionHooks
    ) -> None:
        self.url = url
        self.is_ready = asyncio.Event()
        """Whether contexts can be opened."""
        self._headers = headers
        self._attempts = attempts
        self._hooks = hooks
        self._socket: ClientSocket | None = None
        self._sockets: set[ClientSocket] = set()  # the current one, and those that drain
        self._is_unusable = asyncio.Event()
        self._connected_at_s = 0.0

    @property
    def socket(self) -> ClientSocket:
        """The open socket.

        Raises:
            ConnectionLostError: there is none.
        """
        if self._socket is None or not self._socket.is_usable:
            raise ConnectionLostError(f"no connection to {self.url}")
        return self._socket

    async def connect(self) -> bool:
        """Try once to connect; returns whether it worked."""
        return await self._try_to_connect(self._hooks.now_s())

    async def keep(self) -> None:
        """Connect unless connected, and again after each loss, until all attempts have failed."""
        while self.is_ready.is_set() or await self._connect():
            await self._is_unusable.wait()
            await self._hooks.on_disconnected()
            if self._hooks.now_s() - self._connected_at_s < _SHORT_CONNECTION_S:
                await asyncio.sleep(_RECONNECT_WAIT_S)

    def give_up(self, reason: str) -> None:
        """Replace a socket on which the server does not answer."""
        if self._socket is not None:
            self._socket.give_up(reason)

    async def aclose(self) -> None:
        """Close the sockets; idempotent."""
        sockets, self._sockets, self._socket = self._sockets, set(), None
        self.is_ready.clear()
        if sockets:
            await asyncio.gather(*(socket.aclose() for socket in sockets))
            await self._hooks.on_disconnected()

    async def _connect(self) -> bool:
        began_at_s = self._hooks.now_s()
        for _ in range(self._attempts):
            if not self._hooks.may_connect():
                return False
            if await self._try_to_connect(began_at_s):
                return True
            await asyncio.sleep(_RECONNECT_WAIT_S)
        logger.warning(f"no connection to the server after {self._attempts} attempts")
        return False

    async def _try_to_connect(self, began_at_s: float) -> bool:
        try:
            socket = await open_socket(
                self.url, self._headers, connect_timeout_s=_CONNECT_TIMEOUT_S
            )
        except VoiceAgentError as error:
            await self._hooks.on_failure(error, began_at_s)
            return False
        self._socket, self._connected_at_s = socket, self._hooks.now_s()
        self._sockets.add(socket)
        self._is_unusable.clear()
        socket.start(on_unusable=self._leave, on_event=self._hooks.on_event)
        await self._hooks.on_connected(socket)
        if socket.is_usable:
            self.is_ready.set()
        return True

    def _leave(self, socket: ClientSocket) -> None:
        if socket.is_lost:
            self._sockets.discard(socket)
        if socket is self._socket:
            self.is_ready.clear()
            self._is_unusable.set()
