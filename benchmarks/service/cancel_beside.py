"""How long does a cancel take while another context of its socket waits to be opened?

    python -m benchmarks.service.cancel_beside

A server in a process of its own speaks English with hibari and all else with espeak-ng, and asks
Redis for the limits of its key. Beside a context that speaks, a second one is opened on the same
socket; then the first is cancelled, at a random time of the next 0.3 s. What the second one waits
for is one of `OBSTACLES`.
"""

import asyncio
import contextlib
import json
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common.report import percentiles, provenance, publish
from testbed.redis_process import RedisProcess
from testbed.server_process import ServerProcess, serving
from testbed.wire import Wire
from voiceagent_tts.lexicon import MAX_FILE_ENTRIES
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import CancelledMessage, ContextOpened
from voiceagent_tts.voices import LEXICON_SUFFIX

SPOKEN = "The quick brown fox jumps over the lazy dog. " * 3
VOICE = "de"
"""A voice of the other worker, which has the lexicon."""
_SECRET = "a-key-of-this-benchmark"
_KEY = {"additional_headers": {"X-API-Key": _SECRET}}
_WITHIN_S = 0.3
_RESTART_S = 0.2  # from the kill to the open: the server has noticed


class Machine:
    """The server, its Redis and its folder of voices."""

    def __init__(self, server: ServerProcess, redis: RedisProcess, folder: Path) -> None:
        self.server = server
        self._redis = redis
        self._lexicon = folder / f"{VOICE}{LEXICON_SUFFIX}"
        lines = (
            f'"Name {number} von Ort" = "Nahme {number}"' for number in range(MAX_FILE_ENTRIES)
        )
        self._entries = "\n".join(lines)

    @contextlib.asynccontextmanager
    async def nothing(self) -> AsyncIterator[None]:
        """The second context opens at once."""
        yield

    @contextlib.asynccontextmanager
    async def lexicon(self) -> AsyncIterator[None]:
        """Its voice has a new lexicon of as many entries as a file may have."""
        self._lexicon.write_text(f"{self._entries}\n# {time.monotonic_ns()}\n")
        try:
            yield
        finally:
            self._lexicon.unlink()

    @contextlib.asynccontextmanager
    async def redis(self) -> AsyncIterator[None]:
        """Redis does not answer."""
        with self._redis.suspended():
            yield

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        """The worker of its voice was killed."""
        for process in self.server.worker_processes():
            if "espeak" in process.cmdline():
                process.kill()
        await asyncio.sleep(_RESTART_S)
        yield


OBSTACLES: dict[str, Callable[[Machine], contextlib.AbstractAsyncContextManager[None]]] = {
    "nothing": Machine.nothing,
    "lexicon": Machine.lexicon,
    "redis": Machine.redis,
    "worker": Machine.worker,
}
"""What the second context waits for, by name."""


async def cancel_ms(wire: Wire, obstacle: contextlib.AbstractAsyncContextManager[None]) -> float:
    """Milliseconds from a `cancel` to its answer beside a context that waits for `obstacle`."""
    speaking = await wire.open(language="en", max_lead_s=0.2)
    await wire.text(speaking, SPOKEN)
    await wire.until(ClientAudio, speaking)
    async with obstacle:
        second = await wire.open(voice=VOICE, max_lead_s=0.2)
        await _read_for(wire, random.uniform(0.0, _WITHIN_S))
        began = time.perf_counter()
        await wire.cancel(speaking)
        await wire.until(CancelledMessage, speaking)
        took_ms = (time.perf_counter() - began) * 1000
    if not any(isinstance(event, ContextOpened) for event in second.events):
        await wire.until(ContextOpened, second)
    await wire.cancel(second)
    await wire.finish(second)
    return took_ms


async def _read_for(wire: Wire, seconds: float) -> None:
    """Read what arrives, as a client does, for some time."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(TimeoutError):
        while (left_s := deadline - time.monotonic()) > 0:
            await wire.receive(left_s)


async def measure(machine: Machine, name: str, count: int) -> dict[str, float]:
    """Percentiles and the maximum of `count` cancels beside one obstacle."""
    async with Wire.connected(machine.server.websocket_url, **_KEY) as wire:
        times_ms = [await cancel_ms(wire, OBSTACLES[name](machine)) for _ in range(count)]
    return {**percentiles(times_ms), "max_ms": round(max(times_ms), 2)}


def main(
    count: Annotated[int, typer.Option(min=1, help="Cancels beside each obstacle.")] = 200,
    only: Annotated[list[str] | None, typer.Option(help="Names of obstacles.")] = None,
    redis_port: Annotated[int, typer.Option(help="A free port.")] = 6390,
) -> None:
    """Measure a cancel beside contexts that wait to be opened."""
    origin = provenance()
    with (
        tempfile.TemporaryDirectory(prefix="voiceagent-") as folder,
        RedisProcess(redis_port) as redis,
    ):
        settings = {
            "engine": "hibari",
            "voices_folder": folder,
            "redis": redis.url,
            "api_keys": _SECRET,
            "key_limits": "contexts=1000",
        }
        with serving(log=Path(folder, "log"), **settings) as server:
            machine = Machine(server, redis, Path(folder))
            result = {
                name: asyncio.run(measure(machine, name, count)) for name in only or OBSTACLES
            }
    for name, figures in result.items():
        print(name, json.dumps(figures))
    publish({"cancels": result, "count": count, "cores": os.cpu_count(), **origin})


if __name__ == "__main__":
    typer.run(main)
