"""A voiceagent-tts server that runs as long as a demo agent needs it."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from voiceagent_tts.errors import EngineError

_OPTIONS = ("--host", "127.0.0.1", "--port", "0")


@dataclass(frozen=True, slots=True)
class DemoVoice:
    """The voice of a demo's agent.

    Attributes:
        engine: engine of its server.
        languages: codes of the languages that it speaks in the demo.
        has_native_words: whether the engine reports when its words sound; else an aligner does.
    """

    engine: str
    languages: tuple[str, ...]
    has_native_words: bool = True


EMBEDDED = DemoVoice("espeak", ("en", "de", "es", "zh"))


@contextlib.asynccontextmanager
async def demo_server(log: Path, engine: str = EMBEDDED.engine) -> AsyncIterator[str]:
    """Run a server; yields the URL of its WebSocket.

    The engine, the address and the keys that are configured for other servers do not apply, nor do
    models to the embedded voice, which has none.

    Args:
        log: file for the server's standard error.
        engine: its engine.

    Raises:
        EngineError: the server did not start; its log says why.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "voiceagent_tts", "serve", *_OPTIONS, "--engine", engine]
    environment = {**os.environ, "VOICEAGENT_TTS_API_KEYS": ""}
    if engine == EMBEDDED.engine:
        environment["VOICEAGENT_TTS_MODELS"] = ""
    with log.open("wb") as stderr:
        server = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=environment,
        )
        try:
            assert server.stdout is not None
            ready = (await server.stdout.readline()).decode().split()
            if not ready:
                raise EngineError(f"the server did not start; see {log}")
            yield ready[1]
        finally:
            with contextlib.suppress(ProcessLookupError):
                server.terminate()
            await server.wait()
