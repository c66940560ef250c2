"""A voiceagent-tts server of an agent's own, for as long as the agent needs it."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path


@contextlib.asynccontextmanager
async def serving(log: Path) -> AsyncIterator[str]:
    """Run a server on the embedded voice; gives its WebSocket URL.

    Args:
        log: takes what the server writes to standard error.

    Raises:
        SystemExit: the server did not start.
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
                raise SystemExit(f"the server did not start; {log} says why")
            yield ready[1]
        finally:
            with contextlib.suppress(ProcessLookupError):
                server.terminate()
            await server.wait()
