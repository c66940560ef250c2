"""The client of one server: keeps a socket open, and opens contexts on it."""

import asyncio
import random
import weakref
from collections.abc import AsyncGenerator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, Unpack
from uuid import uuid4

from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus, InvalidURI
from websockets.http11 import Response

from voiceagent_tts.client.address import (
    TRY_TLS,
    authorization,
    connection_problem,
    public_address,
    refusal,
    server_message,
    speaks_no_tls,
    websocket_address,
)
from voiceagent_tts.client.context import ClientContext, Event
from voiceagent_tts.client.socket import ClientSocket
from voiceagent_tts.client.transport import connect_websocket
from voiceagent_tts.errors import (
    ConnectionLostError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    UnauthorizedError,
    VoiceAgentError,
)
from voiceagent_tts.protocol.client_connection import OpenOptions
from voiceagent_tts.protocol.messages import SUBPROTOCOL, ReadyMessage

RETRY_WAITS_S = (0.1, 0.3, 1.0)
"""Waits between attempts to connect; each varies by half, so that clients do not return at once."""


class TTSClient:
    """A client of one server; connects on first use, and again after a lost socket.

    It and its contexts are used in one event loop: another one is refused (`not_supported`).

    Args:
        url: the server, such as `ws://127.0.0.1:8765`; without a path, `/v1/tts/ws`; `http://`
            and `https://` mean `ws://` and `wss://`.
        api_key: sent as a bearer token.
        connect_timeout_s: maximum time of one attempt to connect, up to the server's `ready`.
        answer_timeout_s: maximum wait for the answer to `cancel` and `cut`.

    Raises:
        InvalidRequestError: `url` is not the address of a server, or `api_key` cannot be sent in a
            header.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        connect_timeout_s: float = 10.0,
        answer_timeout_s: float = 5.0,
    ) -> None:
        self._url = websocket_address(url)
        self._headers = authorization(api_key)
        self._connect_timeout_s = connect_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._socket: ClientSocket | None = None
        self._sockets: weakref.WeakSet[ClientSocket] = weakref.WeakSet()  # also those that drain
        self._connecting = asyncio.Lock()
        self._attempts: asyncio.Timeout | None = None  # to connect, while some are made
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def connect(self) -> ReadyMessage:
        """Open a socket unless one is open; makes four attempts with growing waits.

        Returns:
            What the server reported about itself.

        Raises:
            UnauthorizedError: the server refused the key.
            ConnectionLostError: the server cannot be reached.
            OverloadedError: the server accepts no sockets now.
            VoiceAgentError: the server speaks another version (`version_mismatch`), or is no
                `tts.v1` server.
        """
        return (await self._usable_socket()).ready

    async def open(
        self,
        *,
        context_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        **options: Unpack[OpenOptions],
    ) -> ClientContext:
        """Open a context; does not wait for the server's answer, which may be an error later.

        Args:
            context_id: a new id; None for a random one.
            metadata: for the server's logs, at most 1 KiB of JSON. In a program that traces with
                OpenTelemetry, it also has the `traceparent` of the context's span, beyond that.
            options: the fields of `protocol.messages.ContextDefaults`.

        Raises:
            InvalidRequestError: an option is wrong, or the id is in use.
            VoiceAgentError: as for `connect`.
        """
        socket = await self._usable_socket()
        context_id = context_id or uuid4().hex
        return ClientContext(socket, context_id, self._answer_timeout_s, metadata, options)

    async def say(self, text: str, **options: Unpack[OpenOptions]) -> AsyncGenerator[Event, None]:
        """Speak a whole text; closing the iterator early cancels the context."""
        async with await self.open(**options) as context:
            await context.send_text(text)
            await context.end()
            async for event in context:
                yield event

    async def prepare(
        self, *, voice: str | None = None, language: str | None = None, instruct: str | None = None
    ) -> None:
        """Connect, and ask the server to load in advance what a context with this voice needs."""
        socket = await self._usable_socket()
        socket.send(socket.connection.prepare(voice=voice, language=language, instruct=instruct))
        await socket.drain()

    async def aclose(self) -> None:
        """Close the sockets, which cancels their contexts, and end attempts to connect; idempotent.

        Calls that wait for a connection raise `ConnectionLostError`.
        """
        if self._attempts is not None and not self._is_closed:
            self._attempts.reschedule(0)
        self._is_closed = True
        async with self._connecting:
            await asyncio.gather(*(socket.aclose() for socket in list(self._sockets)))

    async def _usable_socket(self) -> ClientSocket:
        if self._socket is not None:
            self._socket.check_loop()
        async with self._connecting:
            if not self._is_closed and (self._socket is None or not self._socket.is_usable):
                self._socket = await self._connect_until_closed()
            if self._is_closed or self._socket is None:
                raise ConnectionLostError("this client has been closed")
            return self._socket

    async def _connect_until_closed(self) -> ClientSocket | None:
        """A new socket; None if the client is closed before there is one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as self._attempts:  # `aclose` ends it
                try:
                    socket = await self._connect()
                    self._sockets.add(socket)
                    return socket
                finally:
                    self._attempts = None
        return None

    async def _connect(self) -> ClientSocket:
        for wait_s in RETRY_WAITS_S:
            try:
                return await self._connect_once()
            except (ConnectionLostError, OverloadedError):
                await asyncio.sleep(wait_s * random.uniform(0.5, 1.5))
        return await self._connect_once()

    async def _connect_once(self) -> ClientSocket:
        address = public_address(self._url)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                # The time limit includes the handshake of `tts.v1`.
                transport = await connect_websocket(self._url, self._headers, open_timeout_s=None)
                return await ClientSocket.over(transport)
        except InvalidStatus as error:
            raise _rejection(error.response, self._url) from error
        except (InvalidHandshake, InvalidURI) as error:
            sentence = f"{address} is no {SUBPROTOCOL} server: {type(error).__name__}"
            if isinstance(error, InvalidMessage) and self._url.startswith("ws:"):
                sentence += f"; {TRY_TLS}"
            raise InvalidRequestError(sentence, code=ErrorCode.NOT_FOUND) from error
        except OSError as error:
            problem = connection_problem(address, error)
            if speaks_no_tls(error):
                raise InvalidRequestError(problem, code=ErrorCode.NOT_FOUND) from error
            raise ConnectionLostError(problem) from error


def _rejection(response: Response, url: str) -> VoiceAgentError:
    status = response.status_code
    sentence = refusal(status, url)
    match status:
        case 401:
            return UnauthorizedError(sentence)
        case 403:
            reason = server_message(response.body)
            told = sentence if reason is None else f"the server answered with HTTP 403: {reason}"
            return UnauthorizedError(told, code=ErrorCode.FORBIDDEN)
        case 429:
            return OverloadedError(sentence, code=ErrorCode.RATE_LIMITED)
        case _ if status >= 500:
            return OverloadedError(sentence)
        case _:
            return InvalidRequestError(sentence, code=ErrorCode.NOT_FOUND)
