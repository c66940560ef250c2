"""Starts servers as processes, which share no event loop with their clients; that of the demo."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from voiceagent_tts.errors import EngineError
from voiceagent_tts.offspring import Following

_OPTIONS = ("--host", "127.0.0.1", "--port", "0")
_KEYS = ("KEYS", "API_KEYS", "API_KEY")
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class DemoVoice:
    """The voice of a demo's agent.

    Attributes:
        engine: engine of its server.
        languages: codes of the languages that it speaks in the demo.
        max_onset_error_ms: how far the words after pauses may be from the sound, where the engine
            reports them itself; None where an aligner does.
        user_voice: voice of its server that the user has; None where the user needs another server.
    """

    engine: str
    languages: tuple[str, ...]
    max_onset_error_ms: int | None = 40
    user_voice: str | None = "nova"


EMBEDDED = DemoVoice("espeak", ("en", "de", "es", "zh"))
NATURAL = DemoVoice("hibari", EMBEDDED.languages, max_onset_error_ms=80, user_voice="f2")
"""hibari, whose server has espeak's voices too: the user's, and the agent's of other languages."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A running server."""

    url: str
    pid: int


@contextlib.asynccontextmanager
async def demo_server(log: Path, engine: str = EMBEDDED.engine) -> AsyncIterator[str]:
    """Run a server; yields the URL of its WebSocket.

    The engine, the address and the keys that are configured for other servers do not apply, nor do
    models where the voice needs none.

    Raises:
        EngineError: the server did not start; its log says why.
    """
    argv = ("-m", "voiceagent_tts", "serve", *_OPTIONS, "--engine", engine)
    needs_none = engine in (EMBEDDED.engine, NATURAL.engine)
    environment = {"VOICEAGENT_TTS_MODELS": ""} if needs_none else {}
    async with server_process(argv, log, environment) as server:
        yield server.url


@contextlib.asynccontextmanager
async def server_process(
    argv: Sequence[str], log: Path, environment: Mapping[str, str]
) -> AsyncIterator[ServerProcess]:
    """Run Python with `argv` until the block ends; its first line is `ready` and an address.

    It ends with this process, too, even if this one is killed.

    It has none of the keys that the environment or the settings file has for other servers.

    Raises:
        EngineError: the server did not start; its log says why.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    no_keys = dict.fromkeys((f"VOICEAGENT_TTS_{name}" for name in _KEYS), "")
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *argv,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **no_keys, **environment},
            preexec_fn=Following(os.getpid()),
        )
    try:
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), _START_TIMEOUT_S)
        except TimeoutError as error:
            late = f"the server did not start within {_START_TIMEOUT_S:g} s; see {log}"
            raise EngineError(late) from error
        word, _, url = line.decode().strip().partition(" ")
        if word != "ready":
            raise EngineError(f"the server did not start; see {log}")
        yield ServerProcess(url, process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()
