"""A TCP proxy with the faults of real networks: delay, little bandwidth, slices, and broken ends.

This module depends on no agent framework and no protocol.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Faults:
    """What a network does to every connection, in both directions.

    Args:
        latency_s: delay of all data.
        jitter_s: largest addition to the delay, which varies from piece to piece; order is kept.
        bytes_per_s: bandwidth; None for no limit.
        slice_bytes: largest piece that is forwarded at once.
        reset_after_bytes: data towards the client after which the connection is reset.
        half_close_after_bytes: data towards the client after which nothing more is sent to it, with
            a FIN, while its own data is still forwarded.
        vanish_after_bytes: data towards the client after which everything is dropped, without any
            sign, as behind a NAT that has forgotten the connection.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float | None = None
    slice_bytes: int = 65_536
    reset_after_bytes: int | None = None
    half_close_after_bytes: int | None = None
    vanish_after_bytes: int | None = None


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
        with contextlib.suppress(ConnectionError):
            while data := await source.read(self._faults.slice_bytes):
                await asyncio.sleep(self._delay_s(len(data)))
                if is_to_client and not self._may_send(len(data)):
                    return
                if not self._has_vanished:
                    sink.write(data)
                    await sink.drain()
            if not self._has_vanished:
                sink.write_eof()

    def _delay_s(self, size_bytes: int) -> float:
        faults = self._faults
        sending_s = size_bytes / faults.bytes_per_s if faults.bytes_per_s else 0.0
        return faults.latency_s + self._random.random() * faults.jitter_s + sending_s

    def _may_send(self, size_bytes: int) -> bool:
        """Count data towards the client, and break the connection where the faults say so."""
        self._sent_bytes += size_bytes
        faults = self._faults
        if _is_over(self._sent_bytes, faults.reset_after_bytes):
            self._client.transport.abort()
            return False
        if _is_over(self._sent_bytes, faults.half_close_after_bytes):
            self._client.write_eof()
            return False
        self._has_vanished |= _is_over(self._sent_bytes, faults.vanish_after_bytes)
        return True


def _is_over(sent_bytes: int, limit_bytes: int | None) -> bool:
    return limit_bytes is not None and sent_bytes > limit_bytes


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
