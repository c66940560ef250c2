"""A TCP proxy between a service and its server, whose connections can be cut."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TypeVar
from urllib.parse import urlsplit

_HTTP_PORT = 80


class Wire:
    """A TCP proxy to the server whose connections can be cut."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Break every open connection, without a closing handshake."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        from_server, to_server = await asyncio.open_connection(*self._address)
        for source, sink in ((reader, to_server), (from_server, writer)):
            self._writers.add(sink)
            self._tasks.add(asyncio.create_task(self._forward(source, sink)))

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        sink.close()
        self._writers.discard(sink)

    async def aclose(self) -> None:
        """Break all connections, and wait for their tasks."""
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)


_Wire = TypeVar("_Wire", bound=Wire)


@contextlib.asynccontextmanager
async def wire_to(url: str, kind: type[_Wire] = Wire) -> AsyncIterator[tuple[_Wire, str]]:
    """Yield a proxy to the server at `url`, and the URL of the proxy."""
    parts = urlsplit(url)
    wire = kind(parts.hostname or "127.0.0.1", parts.port or _HTTP_PORT)
    listener = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield wire, parts._replace(netloc=f"127.0.0.1:{port}").geturl()
    finally:
        listener.close()
        await wire.aclose()
