"""What `make bench-readme` measures: our endpoints and the usual wrapper of a speech model."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from voiceagent_tts.client import http_address
from voiceagent_tts.plugins.bench.own_server import own_server
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.target import Options
from voiceagent_tts.plugins.demo.demo_server import server_process

_WRAPPER = ("-m", "benchmarks.service.whole_utterance")


@contextlib.asynccontextmanager
async def peers(folder: Path) -> AsyncIterator[Sequence[TargetAddress]]:
    """Yield our two endpoints and the wrapper, with the embedded voice, and a server of hibari.

    Args:
        folder: folder of the servers' logs.
    """
    embedded, natural = ({"VOICEAGENT_TTS_ENGINE": name} for name in ("espeak", "hibari"))
    async with (
        own_server(log=folder / "bench-server.log", environment=embedded) as server,
        own_server(log=folder / "natural-server.log", environment=natural) as hibari,
        server_process(_WRAPPER, folder / "bench-peer.log", {}) as wrapper,
    ):
        ours = Options(server_pid=server.pid)
        unpaced = replace(ours, arguments={"max_lead_s": 0})
        yield [
            TargetAddress("ours, WebSocket", server.url, ours),
            TargetAddress("ours, WebSocket, unpaced", server.url, unpaced),
            TargetAddress("ours, HTTP", http_address(server.url, ""), ours),
            TargetAddress("whole utterances, HTTP", wrapper.url, Options(server_pid=wrapper.pid)),
            TargetAddress("hibari, WebSocket", hibari.url, Options(server_pid=hibari.pid)),
        ]
