"""Clients behind a bad network: nothing is mixed up, nothing grows, and every client has an end."""

import asyncio
import gc
from typing import Any

import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from testbed.chaos import Faults, chaotic
from testbed.servers import StartServer
from testbed.waiting import PATIENCE_S, until
from testbed.wire import Wire
from voiceagent_tts.server import serve
from voiceagent_tts.server.serve import RunningServer

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
    "reset": Faults(reset_after_bytes=60_000, jitter_s=0.01),
    "half-close": Faults(half_close_after_bytes=60_000),
    "no FIN": Faults(vanish_after_bytes=60_000),
}


def sentence(number: int) -> str:
    """A text that differs from client to client."""
    return f"This is client number {number}, and it counts {' '.join(map(str, range(number)))}."


async def say(url: str, number: int, **options: Any) -> bytes:
    """Return the audio of one client; `options` are those of its socket."""
    async with Wire.connected(url, close_timeout=1, **options) as wire:
        return bytes((await wire.say(sentence(number), voice=REPEATABLE, language="en")).pcm)


async def until_free(server: RunningServer) -> None:
    """Wait until no socket, context or row is in use."""
    worker = server.state.synthesizer.supervisors["espeak"].worker
    assert worker is not None
    await until(lambda: not server.state.sessions, "every socket is closed")
    await until(lambda: not server.state.synthesizer.contexts_active, "no context is open")
    await until(lambda: not worker.rows_used, "no row is in use")


@pytest.mark.parametrize("name", LATE_BUT_COMPLETE)
async def test_a_slow_network_mixes_nothing_up(server: RunningServer, name: str) -> None:
    """Concurrent clients each hear exactly what they hear alone, however the data is cut."""
    alone = [await say(server.websocket_url, number) for number in range(CLIENTS)]
    async with chaotic(server.websocket_url, LATE_BUT_COMPLETE[name]) as url:
        together = await asyncio.gather(*(say(url, number) for number in range(CLIENTS)))
    assert together == alone
    await until_free(server)


@pytest.mark.parametrize("name", BROKEN)
async def test_every_client_of_a_broken_network_has_an_end(
    start_server: StartServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients and server notice: each client gets an error, and no row, socket or task is left."""
    monkeypatch.setattr(serve, "PING_INTERVAL_S", 0.5)
    server = await start_server()
    await say(server.websocket_url, CLIENTS)
    await until_free(server)
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
        await until_free(server)
    await until(lambda: len(asyncio.all_tasks()) <= tasks, "no task is left")
    await until(lambda: process.num_fds() <= descriptors, "no descriptor is left")
    assert process.memory_info().rss - rss_bytes < 30e6
    assert await say(server.websocket_url, 1), "others are served"
