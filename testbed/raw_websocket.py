"""A WebSocket client that sends any frame, also those that RFC 6455 forbids."""

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
CONTINUATION = 0x0


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, masked: bool = True
) -> bytes:
    """Build a frame. Source: RFC 6455, 5.2."""
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    mask_bit = 0x80 if masked else 0
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", first, mask_bit | size)
    elif size < 65_536:
        head = struct.pack("!BBH", first, mask_bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, mask_bit | 127, size)
    if not masked:
        return head + payload
    mask = os.urandom(4)
    masks = (mask * (size // 4 + 1))[:size]
    masked_payload = int.from_bytes(payload) ^ int.from_bytes(masks)
    return head + mask + masked_payload.to_bytes(size)


class RawWebSocket:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, *data: bytes) -> None:
        """Send bytes as they are; a connection that the server has broken swallows them."""
        with contextlib.suppress(ConnectionError):
            self._writer.writelines(data)
            await self._writer.drain()

    async def receive(self) -> tuple[int, bytes]:
        """Receive a frame of the server, which never fragments its messages."""
        first, size = await self._reader.readexactly(2)
        if size == 126:
            (size,) = struct.unpack("!H", await self._reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self._reader.readexactly(8))
        return first & 0x0F, await self._reader.readexactly(size)

    async def until_closed(self) -> int | None:
        """Read to the end; return the code of the server's close, None without one."""
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                opcode, payload = await self.receive()
                if opcode == CLOSE:
                    return struct.unpack("!H", payload[:2])[0] if payload else 1005
        return None


@contextlib.asynccontextmanager
async def raw_websocket(url: str, path: str) -> AsyncIterator[RawWebSocket]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    answer = await reader.readuntil(b"\r\n\r\n")
    assert b" 101 " in answer, answer
    try:
        yield RawWebSocket(reader, writer)
    finally:
        writer.transport.abort()
