"""A voiceagent-tts server that runs as long as a demo agent needs it."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from voiceagent_tts.errors import EngineError

_OPTIONS = ("--host", "127.0.0.1", "--port", "0", "--engine", "espeak")


@contextlib.asynccontextmanager
async def demo_server(log: Path) -> AsyncIterator[str]:
    """Run a server with the embedded voice; yields the URL of its WebSocket.

    The engine, the address and the keys that are configured for other servers do not apply.

    Args:
        log: file for the server's standard error.

    Raises:
        EngineError: the server did not start; its log says why.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "voiceagent_tts", "serve", *_OPTIONS]
    with log.open("wb") as stderr:
        server = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "VOICEAGENT_TTS_API_KEYS": ""},
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
