"""Our own service on both hosts, for runs with a server of their own."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from voiceagent_tts.plugins.bench.own_server import own_server
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.target import Options
from voiceagent_tts.plugins.demo.demo_server import ServerProcess

_SETTINGS = {"voice": "default", "language": "{language}"}


def own_services(url: str) -> list[TargetAddress]:
    """This project's service on both hosts, with the server at `url` (`ws://HOST:PORT/PATH`)."""
    return [
        TargetAddress(
            "ours, Pipecat",
            "pipecat:voiceagent_tts.adapters.pipecat.VoiceAgentTTSService",
            Options(arguments={"url": url, "settings": _SETTINGS}),
        ),
        TargetAddress(
            "ours, LiveKit",
            "livekit:voiceagent_tts.adapters.livekit.TTS",
            Options(arguments={"url": url, **_SETTINGS}),
        ),
    ]


def embedded_server(folder: Path) -> AbstractAsyncContextManager[ServerProcess]:
    """Serve the embedded voice until the block ends; its log is in `folder`."""
    environment = {"VOICEAGENT_TTS_ENGINE": "espeak"}
    return own_server(log=folder / "bench-bargein-server.log", environment=environment)


@contextlib.asynccontextmanager
async def targets_or_ours(
    addresses: Sequence[TargetAddress], folder: Path
) -> AsyncIterator[Sequence[TargetAddress]]:
    """Yield the targets; without any, ours on both hosts, with a server of this run."""
    if addresses:
        yield addresses
        return
    async with embedded_server(folder) as server:
        yield own_services(server.url)
