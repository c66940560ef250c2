"""How long does a cancel take while another context of its socket waits to be opened?

    python -m benchmarks.service.cancel_beside

A server speaks English with hibari and all else with espeak-ng, and asks Redis for the limits of
its key. Beside a context that speaks, a second one is opened on the same socket and waits for one
of `OBSTACLES`; then the first one is cancelled. `missed` names the obstacles whose p99 is beyond
30 ms. Needs Debian's `redis-server`.
"""

import asyncio
import contextlib
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common.report import percentiles, provenance, publish
from testbed.ports import free_ports
from testbed.redis_process import RedisProcess
from testbed.server_process import ServerProcess, serving
from testbed.wire import Wire
from voiceagent_tts.lexicon import MAX_FILE_ENTRIES
from voiceagent_tts.plugins.lexicons.server import SUFFIX
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import CancelledMessage, ContextOpened

_SPOKEN = "The quick brown fox jumps over the lazy dog. " * 3
_VOICE = "de"
"""A voice of the other worker, which has the lexicon."""
_SECRET = "a-key-of-this-benchmark"
_WITHIN_S = 0.3
"""The cancel comes at a random time after the second opening."""
_NOTICED_S = 0.2
"""Time in which the server notices that a worker was killed."""
_MOST_MS = 30.0


class _Machine:
    """The server, its Redis and its folder of voices."""

    def __init__(self, server: ServerProcess, redis: RedisProcess, folder: Path) -> None:
        self.server, self._redis = server, redis
        self._lexicon = folder / f"{_VOICE}{SUFFIX}"
        entries = (f'"Name {each} von Ort" = "Nahme {each}"' for each in range(MAX_FILE_ENTRIES))
        self._entries = "\n".join(entries)

    @contextlib.asynccontextmanager
    async def lexicon(self) -> AsyncIterator[None]:
        """The second voice has a new lexicon of as many entries as a file may have."""
        self._lexicon.write_text(f"{self._entries}\n# {time.monotonic_ns()}\n")
        yield

    @contextlib.asynccontextmanager
    async def redis(self) -> AsyncIterator[None]:
        """Redis does not answer."""
        with self._redis.suspended():
            yield

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        """The worker of the second voice starts again."""
        for process in self.server.worker_processes():
            if "espeak" in process.cmdline():
                process.kill()
        await asyncio.sleep(_NOTICED_S)
        yield


OBSTACLES: dict[str, Callable[[_Machine], contextlib.AbstractAsyncContextManager[None]]] = {
    "nothing": lambda _: contextlib.nullcontext(),
    "lexicon": _Machine.lexicon,
    "redis": _Machine.redis,
    "worker": _Machine.worker,
}
"""What the second context waits for, by name."""


async def _cancel_ms(wire: Wire, obstacle: contextlib.AbstractAsyncContextManager[None]) -> float:
    """Milliseconds from a `cancel` to its answer beside a context that waits."""
    speaking = await wire.open(language="en", max_lead_s=0.2)
    await wire.text(speaking, _SPOKEN)
    await wire.until(ClientAudio, speaking)
    async with obstacle:
        second = await wire.open(voice=_VOICE, max_lead_s=0.2)
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


async def _measure(machine: _Machine, name: str, count: int) -> dict[str, float]:
    headers = {"X-API-Key": _SECRET}
    url = machine.server.websocket_url
    async with Wire.connected(url, additional_headers=headers) as wire:
        times_ms = [await _cancel_ms(wire, OBSTACLES[name](machine)) for _ in range(count)]
    return figures(times_ms)


def figures(times_ms: list[float]) -> dict[str, float]:
    """Percentiles and maximum of the times of cancels."""
    return percentiles(times_ms) | {"max_ms": round(max(times_ms), 2)}


def missed(cancels: dict[str, dict[str, float]]) -> list[str]:
    """The obstacles beside which one cancel of a hundred takes too long."""
    return [name for name, each in cancels.items() if each["p99_ms"] > _MOST_MS]


def main(
    count: Annotated[int, typer.Option(min=1, help="Cancels beside each obstacle.")] = 200,
    only: Annotated[list[str] | None, typer.Option(help="Names of obstacles.")] = None,
) -> None:
    """Measure a cancel beside contexts that wait; the last line of the output is JSON."""
    with (
        tempfile.TemporaryDirectory(prefix="voiceagent-") as folder,
        RedisProcess(free_ports(1)[0]) as redis,
        serving(
            log=Path(folder, "log"), engine="hibari", voices_folder=folder, redis=redis.url,
            api_keys=_SECRET, key_limits="contexts=1000",
        ) as server,
    ):  # fmt: skip
        machine = _Machine(server, redis, Path(folder))
        cancels = {name: asyncio.run(_measure(machine, name, count)) for name in only or OBSTACLES}
    publish({"cancels": cancels, "count": count, "missed": missed(cancels), **provenance()})


if __name__ == "__main__":
    typer.run(main)
