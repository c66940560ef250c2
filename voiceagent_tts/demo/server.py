"""A voiceagent-tts server that runs as long as a demo agent needs it."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from voiceagent_tts.errors import EngineError


@contextlib.asynccontextmanager
async def demo_server(log: Path) -> AsyncIterator[str]:
    """Run a server with the embedded voice; yields the URL of its WebSocket.

    Args:
        log: file for the server's standard error.

    Raises:
        EngineError: the server did not start; its log says why.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "voiceagent_tts", "serve", "--port", "0"]
    with log.open("wb") as stderr:
        server = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=stderr
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
