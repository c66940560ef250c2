"""A router between plugin and server that can forget its connections, as NAT does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit


class Router:
    """Passes bytes on; what was connected before `forget` is swallowed in silence."""

    def __init__(self, port: int) -> None:
        self.accepted = 0
        self._target_port = port
        self._generation = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def forget(self) -> None:
        """Drop what comes on connections that are open now, without closing them."""
        self._generation += 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.accepted += 1
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target_port)
        for source, sink in ((reader, to_server), (from_server, writer)):
            self._writers.append(sink)
            task = asyncio.create_task(self._pass_on(source, sink, self._generation))
            self._tasks.add(task)

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, generation: int
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                if generation == self._generation:
                    sink.write(data)
            if generation == self._generation:
                sink.close()

    async def aclose(self) -> None:
        """End all connections."""
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def routing(websocket_url: str) -> AsyncIterator[tuple[Router, str]]:
    """A router to a server, and the URL of the server through it."""
    parts = urlsplit(websocket_url)
    assert parts.port is not None
    router = Router(parts.port)
    listener = await asyncio.start_server(router.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield router, parts._replace(netloc=f"127.0.0.1:{port}").geturl()
    finally:
        listener.close()
        await router.aclose()


@contextlib.asynccontextmanager
async def black_hole() -> AsyncIterator[str]:
    """A URL whose server accepts connections, reads, and never answers."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            pass
        writer.close()

    listener = await asyncio.start_server(swallow, "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1/tts/ws"
    finally:
        listener.close()
