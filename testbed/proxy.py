"""Simulate a router between adapter and server that forgets connections, as NAT does, or fails."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial

from voiceagent_tts.plugins.bench.bargein.wire import Wire, wire_to


class Router(Wire):
    """A proxy that drops the data of connections opened before `forget`, without closing them."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.accepted = 0
        self.refused = 0
        self._is_up = True
        self._status = 0
        self._clients: set[asyncio.StreamWriter] = set()
        self._forgotten: set[asyncio.StreamWriter] = set()

    def forget(self) -> None:
        """Drop the data of all open connections from now on, without closing them."""
        self._forgotten |= self._writers

    def lose_answers(self) -> None:
        """Drop the answers of all open connections from now on; what they ask still arrives."""
        self._forgotten |= self._clients

    def go_down(self, status: int = 0) -> None:
        """Break all connections, and refuse new ones."""
        self.refuse(status)
        self.cut()

    def refuse(self, status: int = 0) -> None:
        """Refuse new connections, with this HTTP status if one is given."""
        self._is_up, self._status = False, status

    def come_up(self) -> None:
        self._is_up = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection, unless the router is down."""
        if not self._is_up:
            self.refused += 1
            return await self._refuse(reader, writer)
        self.accepted += 1
        self._clients.add(writer)
        await super().serve(reader, writer)

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._status:
            writer.transport.abort()
            return
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {self._status} No\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                if sink not in self._forgotten:
                    sink.write(data)
            if sink not in self._forgotten:
                sink.close()


routing = partial(wire_to, kind=Router)
"""Context manager for a router to a server: yields the router and its URL."""


@contextlib.asynccontextmanager
async def black_hole() -> AsyncIterator[str]:
    """Yield the URL of a server that accepts connections, reads, and never answers."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            pass
        writer.close()

    listener = await asyncio.start_server(swallow, "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1/tts/ws"
    finally:
        listener.close()
