"""Finds the voice server that an agent speaks through, or starts one."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from voiceagent_tts.hibari.published import is_installed
from voiceagent_tts.plugins.demo.demo_server import EMBEDDED, NATURAL, demo_server

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8765


@contextlib.asynccontextmanager
async def voice_server(log: Path) -> AsyncIterator[str]:
    """Yield the URL of the voice server: of a running one, or of one that this program starts.

    `VOICEAGENT_TTS_URL` names the server. Without it, the server on this machine's default port is
    used, or else a new one, with hibari where it is installed and the embedded voice where not.

    Args:
        log: file for the standard error of a new server.

    Raises:
        EngineError: a new server did not start.
    """
    if url := os.environ.get("VOICEAGENT_TTS_URL"):
        yield url
    elif await is_listening(DEFAULT_HOST, DEFAULT_PORT):
        yield f"ws://{DEFAULT_HOST}:{DEFAULT_PORT}"
    else:
        async with demo_server(log, (NATURAL if is_installed() else EMBEDDED).engine) as url:
            yield url


async def is_listening(host: str, port: int) -> bool:
    """Whether a server accepts connections at `host` and `port`."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True
