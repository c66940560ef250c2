"""Clients behind a bad network: nothing is mixed up, nothing grows, and every client has an end."""

import asyncio
import contextlib
import gc
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from random import Random
from typing import Any, Literal
from urllib.parse import urlsplit

import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from testbed.servers import StartServer, until_free
from testbed.waiting import PATIENCE_S, until
from testbed.wire import Wire
from voiceagent_tts.server import serve
from voiceagent_tts.server.serve import RunningServer


@dataclass(frozen=True, slots=True)
class Faults:
    """What a network does to every connection.

    Args:
        latency_s: delay of all data, in both directions.
        jitter_s: largest addition to the delay, which varies from piece to piece; order is kept.
        bytes_per_s: bandwidth of each direction.
        slice_bytes: largest piece that is forwarded at once.
        ends_after_bytes: data towards the client after which it ends; None for never.
        end: how: the connection is reset, nothing more is sent to the client (a FIN), or everything
            is dropped without any sign, as behind a NAT that has forgotten the connection.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float = math.inf
    slice_bytes: int = 65_536
    ends_after_bytes: int | None = None
    end: Literal["reset", "FIN", "no FIN"] = "reset"


class _Connection:
    """Forwards one connection with faults until both of its sides have ended."""

    def __init__(self, faults: Faults, random: Random, client: asyncio.StreamWriter) -> None:
        self._faults = faults
        self._random = random
        self._client = client
        self._sent_bytes = 0
        self._has_vanished = False

    async def forward(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_to_client: bool
    ) -> None:
        """Forward one direction."""
        faults = self._faults
        with contextlib.suppress(ConnectionError):
            while data := await source.read(faults.slice_bytes):
                delay_s = faults.latency_s + self._random.random() * faults.jitter_s
                await asyncio.sleep(delay_s + len(data) / faults.bytes_per_s)
                self._sent_bytes += len(data) * is_to_client
                has_ended = self._sent_bytes > (faults.ends_after_bytes or math.inf)
                if has_ended and is_to_client and self._end():
                    return
                if not self._has_vanished:
                    sink.write(data)
                    await sink.drain()
            if not self._has_vanished:
                sink.write_eof()

    def _end(self) -> bool:
        """Break the connection as the faults say; return whether this direction has ended."""
        match self._faults.end:
            case "reset":
                self._client.transport.abort()
            case "FIN":
                self._client.write_eof()
            case "no FIN":
                self._has_vanished = True
        return not self._has_vanished


class _Network:
    """Accepts connections and forwards each to the server."""

    def __init__(self, host: str, port: int, faults: Faults) -> None:
        self._address = host, port
        self._faults = faults
        self._random = Random(0)
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection to its end."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        from_server, to_server = await asyncio.open_connection(*self._address)
        connection = _Connection(self._faults, self._random, writer)
        try:
            await asyncio.gather(
                connection.forward(reader, to_server, is_to_client=False),
                connection.forward(from_server, writer, is_to_client=True),
            )
        finally:
            for end in (writer, to_server):
                end.transport.abort()
            self._serving.discard(task)

    async def aclose(self) -> None:
        """Break all connections."""
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)


@contextlib.asynccontextmanager
async def chaotic(url: str, faults: Faults) -> AsyncIterator[str]:
    """Yield the URL of a proxy with `faults` to the server at `url`."""
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    network = _Network(parts.hostname, parts.port, faults)
    listener = await asyncio.start_server(network.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield parts._replace(netloc=f"127.0.0.1:{port}").geturl()
    finally:
        listener.close()
        await network.aclose()


pytestmark = pytest.mark.services

CLIENTS = 8
WATCHFUL = {"ping_interval": 1, "ping_timeout": 1}
"""Options of a client that notices a dead network; a slow one looks dead on a busy machine."""
REPEATABLE = "ash"  # a voice without the random noise of breath
LATE_BUT_COMPLETE = {
    "latency and jitter": Faults(latency_s=0.03, jitter_s=0.05),
    "bandwidth": Faults(bytes_per_s=400_000),
    "slices": Faults(slice_bytes=700),
    "slices of bytes": Faults(slice_bytes=61),
}
BROKEN = {
    "reset": Faults(ends_after_bytes=60_000, jitter_s=0.01),
    "half-close": Faults(ends_after_bytes=60_000, end="FIN"),
    "no FIN": Faults(ends_after_bytes=60_000, end="no FIN"),
}


def sentence(number: int) -> str:
    """A text that differs from client to client."""
    return f"This is client number {number}, and it counts {' '.join(map(str, range(number)))}."


async def say(url: str, number: int, **options: Any) -> bytes:
    """Return the audio of one client; `options` are those of its socket."""
    async with Wire.connected(url, close_timeout=1, **options) as wire:
        return bytes((await wire.say(sentence(number), voice=REPEATABLE, language="en")).pcm)


async def until_left(server: RunningServer) -> None:
    """Wait until no socket, context or row is in use."""
    await until(lambda: not server.state.sessions, "every socket is closed")
    await until_free(server)


@pytest.mark.parametrize("name", LATE_BUT_COMPLETE)
async def test_a_slow_network_mixes_nothing_up(server: RunningServer, name: str) -> None:
    """Concurrent clients each hear exactly what they hear alone, however the data is cut."""
    alone = [await say(server.websocket_url, number) for number in range(CLIENTS)]
    async with chaotic(server.websocket_url, LATE_BUT_COMPLETE[name]) as url:
        together = await asyncio.gather(*(say(url, number) for number in range(CLIENTS)))
    assert together == alone
    await until_left(server)


@pytest.mark.parametrize("name", BROKEN)
async def test_every_client_of_a_broken_network_has_an_end(
    start_server: StartServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients and server notice: each client gets an error, and no row, socket or task is left."""
    monkeypatch.setattr(serve, "PING_INTERVAL_S", 0.5)
    server = await start_server()
    await say(server.websocket_url, CLIENTS)
    await until_left(server)
    tasks, process = len(asyncio.all_tasks()), psutil.Process()
    gc.collect()
    descriptors, rss_bytes = process.num_fds(), process.memory_info().rss
    async with chaotic(server.websocket_url, BROKEN[name]) as url:
        async with asyncio.timeout(3 * PATIENCE_S):
            for _ in range(3):
                ends = await asyncio.gather(
                    *(say(url, number + 5, **WATCHFUL) for number in range(CLIENTS)),
                    return_exceptions=True,
                )
                assert all(isinstance(end, ConnectionClosed) for end in ends), ends
        await until_left(server)
    await until(lambda: len(asyncio.all_tasks()) <= tasks, "no task is left")
    await until(lambda: process.num_fds() <= descriptors, "no descriptor is left")
    assert process.memory_info().rss - rss_bytes < 30e6
    assert await say(server.websocket_url, 1), "others are served"
