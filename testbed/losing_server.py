"""A server whose model loses the text: tiny random weights, which make noise and find no end."""

from pathlib import Path
from typing import Any

from testbed.linked_models import link_with_few_codebooks
from testbed.parity_reference import REFERENCE
from testbed.servers import StartServer
from voiceagent_tts.server.serve import RunningServer

LOST = "OK"
"""A text that is lost with `LOSING`."""
LOSING: dict[str, Any] = {"voice": "vivian", "language": "en", "seed": 1, "speed": 4.0}
"""Options of a context that loses it after five seconds of noise, which speed makes 1.4 s."""


async def start_losing_server(start_server: StartServer, folder: Path) -> RunningServer:
    """Start the server; `folder` is for its model."""
    link_with_few_codebooks(REFERENCE / "custom_voice-1b7", folder / "losing")
    return await start_server(engine="qwen3", models=(str(folder / "losing"),), rows=2, threads=1)
