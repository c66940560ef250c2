"""Connections over WebSockets; a dialect says what is sent, and what messages mean."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from websockets.asyncio.client import ClientConnection as WebSocket
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

from voiceagent_tts.errors import ConnectionLostError, ErrorCode, VoiceAgentError
from voiceagent_tts.plugins.bench.recorder import Recorder
from voiceagent_tts.plugins.bench.targets.target import Connection
from voiceagent_tts.plugins.bench.utterance import Request

_TIMEOUT_S = 15.0


class ClientDialect(Protocol):
    """Builds and reads the messages of one socket; knows no I/O."""

    @property
    def read_greeting(self) -> Callable[[str | bytes], object] | None:
        """Reads what the server sends before it accepts a message; None where that is nothing.

        The function raises VoiceAgentError for another message.
        """
        ...

    def start(self, request: Request) -> list[str]:
        """Messages that begin an utterance."""
        ...

    def send(self, text: str) -> list[str]:
        """Messages with the next piece of its text."""
        ...

    def end(self) -> list[str]:
        """Messages that end its text."""
        ...

    def cancel(self) -> list[str]:
        """Messages that stop it."""
        ...

    def read(self, data: str | bytes, recorder: Recorder) -> None:
        """Tell `recorder` what a message says.

        Raises:
            ValueError, KeyError, VoiceAgentError: it is not a message of this dialect.
        """
        ...


class SocketTarget:
    """A server behind a WebSocket.

    Args:
        url: address of the socket.
        headers: headers of the handshake.
        make_dialect: makes the dialect of each socket.
        subprotocol: the WebSocket subprotocol, if the server has one.
    """

    def __init__(
        self,
        url: str,
        headers: dict[str, str],
        make_dialect: Callable[[], ClientDialect],
        subprotocol: str | None = None,
    ) -> None:
        self._url, self._headers = url, headers
        self._make_dialect = make_dialect
        self._subprotocols = [Subprotocol(subprotocol)] if subprotocol else None

    async def connect(self, *, is_measured: bool = False) -> Connection:
        """Open a socket; where the server greets, wait for that.

        Raises:
            ConnectionLostError: the server cannot be reached.
        """
        try:
            websocket = await connect(
                self._url,
                additional_headers=self._headers,
                subprotocols=self._subprotocols,
                compression=None,
                max_size=None,
                open_timeout=_TIMEOUT_S,
                close_timeout=1.0,
                proxy=None,
            )
        except (WebSocketException, OSError, TimeoutError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConnectionLostError(
                f"expected a WebSocket at the target, got {reason}; check its address"
            ) from error
        dialect = self._make_dialect()
        if dialect.read_greeting is not None:
            dialect.read_greeting(await _greeting(websocket))
        return _SocketConnection(websocket, dialect)


async def _greeting(websocket: WebSocket) -> str | bytes:
    try:
        return await asyncio.wait_for(websocket.recv(), _TIMEOUT_S)
    except (TimeoutError, WebSocketException) as error:
        await websocket.close()
        reason = str(error) or f"none within {_TIMEOUT_S:g} s"
        raise ConnectionLostError(f"expected the target's greeting, got {reason}") from error


class _SocketConnection:
    """An open socket, whose messages are read in a task of its own."""

    def __init__(self, websocket: WebSocket, dialect: ClientDialect) -> None:
        self._websocket, self._dialect = websocket, dialect
        self._recorder: Recorder | None = None
        self._is_open = True
        self._reader = asyncio.create_task(self._read())

    @property
    def is_usable(self) -> bool:
        return self._is_open

    async def start(self, request: Request, recorder: Recorder) -> None:
        self._recorder = recorder
        if not self._is_open:
            recorder.fail(ErrorCode.CONNECTION_LOST)
        await self._write(self._dialect.start(request))

    async def send(self, text: str) -> None:
        await self._write(self._dialect.send(text))

    async def end(self) -> None:
        await self._write(self._dialect.end())

    async def cancel(self) -> None:
        await self._write(self._dialect.cancel())

    async def aclose(self) -> None:
        self._is_open = False
        self._reader.cancel()
        await asyncio.wait({self._reader})
        await self._websocket.close()

    async def _write(self, messages: list[str]) -> None:
        with contextlib.suppress(WebSocketException):  # the reader reports a lost socket
            for message in messages:
                await self._websocket.send(message)

    async def _read(self) -> None:
        code = ErrorCode.CONNECTION_LOST
        try:
            async for data in self._websocket:
                if self._recorder is not None:
                    self._dialect.read(data, self._recorder)
        except WebSocketException:
            pass
        except (ValueError, KeyError, VoiceAgentError):
            code = ErrorCode.INVALID_MESSAGE
        self._is_open = False
        if self._recorder is not None:
            self._recorder.fail(code)
