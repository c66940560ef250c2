"""The server that a command uses: the one at --url, or a temporary one.

With an address the base install is enough; a server of its own needs the extras `server` and
`espeak`.
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
    # Whoever names a server does not need what it takes to run one.
    from voiceagent_tts.cli.serve import configure_logs
    from voiceagent_tts.cli.settings import read_settings
    from voiceagent_tts.server.serve import running

    configure_logs(is_json=False, is_quiet=True)
    # It has one user, who has no key for it, whatever keys are configured for other servers.
    settings = read_settings({"host": "127.0.0.1", "port": 0, "api_keys": ()})
    async with contextlib.AsyncExitStack() as stack:
        with Console(stderr=True).status("starting a server for this"):
            server = await stack.enter_async_context(running(settings))
        yield server.websocket_url
