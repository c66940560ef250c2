"""Start the server under test as a process, so that it shares no event loop with its client."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A running server."""

    url: str
    """Its address: a WebSocket's, or HTTP."""
    pid: int


@contextlib.asynccontextmanager
async def whole_utterance_server(log: Path) -> AsyncIterator[OwnServer]:
    """Run the peer of `whole_utterance` on a free port until the block ends.

    Raises:
        RuntimeError: it did not start.
    """
    async with _process(["-m", "voiceagent_tts.bench.whole_utterance"], log, {}) as server:
        yield server


@contextlib.asynccontextmanager
async def own_server(
    *arguments: str, log: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[OwnServer]:
    """Serve on a free port of this machine until the block ends, without the cache of phrases.

    Texts come again and again in a benchmark, and the cache would be measured in place of an
    engine.

    Args:
        arguments: further arguments of `voiceagent-tts serve`.
        log: file for the server's standard error.
        environment: further environment variables, such as `VOICEAGENT_TTS_THROTTLE`.

    Raises:
        RuntimeError: the server did not start.
    """
    argv = ["-m", "voiceagent_tts", "serve", "--port", "0", *arguments]
    no_cache = {"VOICEAGENT_TTS_CACHE_MB": "0"}
    async with _process(argv, log, {**no_cache, **(environment or {})}) as server:
        yield server


@contextlib.asynccontextmanager
async def _process(
    argv: Sequence[str], log: Path, environment: Mapping[str, str]
) -> AsyncIterator[OwnServer]:
    """Run Python with `argv` until the block ends; its first line is `ready` and an address."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *argv,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=os.environ | dict(environment),
        )
    try:
        yield OwnServer(await _ready_url(process, log), process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _ready_url(process: asyncio.subprocess.Process, log: Path) -> str:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), _START_TIMEOUT_S)
    word, _, url = line.decode().strip().partition(" ")
    if word != "ready":
        raise RuntimeError(f"the server did not start: expected 'ready URL'; see {log}")
    return url
