"""Select the server for a command: the one at --url, or a temporary one in this process.

With --url the base install suffices; a temporary server needs the extras `server` and `espeak`.
"""

import contextlib
from collections.abc import AsyncIterator

from rich.console import Console


@contextlib.asynccontextmanager
async def websocket_url(url: str | None) -> AsyncIterator[str]:
    """Yield the address of the server at `url`, or of a temporary one within the block."""
    if url is not None:
        yield url
        return
    # Imported here because --url must work without the server's packages.
    from voiceagent_tts.cli.serve import configure_logs
    from voiceagent_tts.cli.settings import read_settings
    from voiceagent_tts.server.serve import running

    configure_logs(is_json=False, is_quiet=True)
    # The only client has no API key, so keys configured for other servers must not apply.
    settings = read_settings({"host": "127.0.0.1", "port": 0, "api_keys": ()})
    async with contextlib.AsyncExitStack() as stack:
        with Console(stderr=True).status("starting a temporary server"):
            server = await stack.enter_async_context(running(settings))
        yield server.websocket_url
