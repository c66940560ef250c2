"""`Transport`: an open WebSocket of any library, and one of the `websockets` library."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from voiceagent_tts.protocol.messages import SUBPROTOCOL

CLOSE_TIMEOUT_S = 2.0
MAX_SERVER_MESSAGE_BYTES = 8 * 2**20
"""`done` repeats all words of a context: an hour of speech is about 1 MB."""


class Transport(Protocol):
    """An open WebSocket, which answers pings itself. Only `close` may be called once it is lost."""

    @property
    def close_code(self) -> int | None:
        """The code that the socket was closed with; None while it is open."""

    async def receive(self) -> str | bytes:
        """The next message.

        Raises:
            ConnectionError: the socket has closed.
        """
        ...

    async def send(self, message: str) -> None:
        """Send a message; wait while the connection is full.

        Raises:
            ConnectionError: the socket has closed.
        """

    async def close(self, code: int = 1000) -> None:
        """Close within `CLOSE_TIMEOUT_S`, whatever the server does; idempotent."""


class _WebSocketsTransport:
    def __init__(self, websocket: ClientConnection) -> None:
        self._websocket = websocket

    @property
    def close_code(self) -> int | None:
        return self._websocket.protocol.close_code

    async def receive(self) -> str | bytes:
        with _closed_as_connection_error():
            return await self._websocket.recv()

    async def send(self, message: str) -> None:
        with _closed_as_connection_error():
            await self._websocket.send(message)

    async def close(self, code: int = 1000) -> None:
        # `websockets` alone would wait for a server that does not read.
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._websocket.close(code)
        except TimeoutError:
            self._websocket.transport.abort()


@contextmanager
def _closed_as_connection_error() -> Iterator[None]:
    try:
        yield
    except ConnectionClosed as error:
        raise ConnectionError(str(error)) from error


async def connect_websocket(
    url: str, headers: Mapping[str, str], *, open_timeout_s: float | None = 10.0
) -> Transport:
    """Connect by the `websockets` library, through the proxy that the environment names.

    Raises:
        InvalidHandshake: there is no `tts.v1` server, or it refused the handshake.
        InvalidURI: `url` has no WebSocket.
        OSError: no connection, or none in time.
    """
    websocket = await connect(
        url,
        subprotocols=[Subprotocol(SUBPROTOCOL)],
        additional_headers=headers,
        compression=None,  # PCM shrinks by 3 % for 100 times the work
        close_timeout=CLOSE_TIMEOUT_S,
        max_size=MAX_SERVER_MESSAGE_BYTES,
        open_timeout=open_timeout_s,
    )
    return _WebSocketsTransport(websocket)
