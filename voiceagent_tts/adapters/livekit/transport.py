"""A `Transport` by LiveKit's HTTP session, with its proxies and certificates."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import aiohttp

from voiceagent_tts.client.transport import CLOSE_TIMEOUT_S, MAX_SERVER_MESSAGE_BYTES, Transport
from voiceagent_tts.protocol.messages import SUBPROTOCOL


class _AiohttpTransport:
    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self._websocket = websocket

    @property
    def close_code(self) -> int | None:
        return self._websocket.close_code

    async def receive(self) -> str | bytes:
        message = await self._websocket.receive()
        if message.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
            raise ConnectionError(message.type.name)
        return message.data

    async def send(self, message: str) -> None:
        await self._websocket.send_str(message)

    async def close(self, code: int = 1000) -> None:
        with suppress(TimeoutError):  # `aiohttp` drops the connection then
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._websocket.close(code=code)


async def connect_websocket(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str], heartbeat_s: float
) -> Transport:
    """Connect by `session`; the caller sets the timeout.

    Args:
        session: HTTP session that makes the connection.
        url: URL of the server's WebSocket.
        headers: HTTP headers of the handshake.
        heartbeat_s: interval of the pings; a pong may take half as long.

    Raises:
        aiohttp.ClientError: no connection, or the server refused the handshake.
    """
    websocket = await session.ws_connect(
        url,
        protocols=[SUBPROTOCOL],
        headers=headers,
        heartbeat=heartbeat_s,
        compress=0,  # PCM shrinks by 3 % for 100 times the work
        max_msg_size=MAX_SERVER_MESSAGE_BYTES,
    )
    return _AiohttpTransport(websocket)
