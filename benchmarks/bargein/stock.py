"""Interrupts ours and the stock services of both hosts, all with our server: `make bench-bargein`.

The stock services speak its other dialects, so that none of them needs a key.
"""

import contextlib
import importlib.util
import shlex
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import typer

from voiceagent_tts.client import DEFAULT_PATH
from voiceagent_tts.plugins.bench.bargein.conditions import Condition, conditions_of
from voiceagent_tts.plugins.bench.bargein.run import run_bargein
from voiceagent_tts.plugins.bench.bargein.services import embedded_server, own_services
from voiceagent_tts.plugins.bench.run import Outputs
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.target import Options


@contextlib.asynccontextmanager
async def ours_and_stock(folder: Path) -> AsyncIterator[Sequence[TargetAddress]]:
    """Yield our service and the stock ones, with a server of the embedded voice."""
    async with embedded_server(folder) as server:
        yield [*own_services(server.url), *stock_services(server.url)]


def stock_services(url: str) -> list[TargetAddress]:
    """The stock services of both hosts that are installed, with the server at `url`."""
    ws = url.removesuffix(DEFAULT_PATH)
    http = ws.replace("ws://", "http://")
    voice = {"voice": "default", "language": "{language}"}
    timed = {**voice, "word_timestamps": True}
    services: dict[str, tuple[str, dict[str, Any]]] = {
        "Cartesia, Pipecat": ("pipecat:pipecat.services.cartesia.tts.CartesiaTTSService",
                              {"url": f"{ws}/tts/websocket", "settings": voice}),
        "ElevenLabs, Pipecat": ("pipecat:pipecat.services.elevenlabs.tts.ElevenLabsTTSService",
                                {"url": ws, "settings": voice}),
        "OpenAI, Pipecat": ("pipecat:pipecat.services.openai.tts.OpenAITTSService",
                            {"base_url": f"{http}/v1", "settings": {"voice": "nova"}}),
        "Cartesia, LiveKit": ("livekit:livekit.plugins.cartesia.TTS", {"base_url": http, **timed}),
        "ElevenLabs, LiveKit": ("livekit:livekit.plugins.elevenlabs.TTS",
                                {"base_url": f"{http}/livekit/v1", "voice_id": "default",
                                 "language": "{language}"}),
        "OpenAI, LiveKit": ("livekit:livekit.plugins.openai.TTS",
                            {"base_url": f"{http}/v1", "voice": "nova", "response_format": "pcm"}),
        "Baseten, LiveKit": ("livekit:livekit.plugins.baseten.TTS",
                             {"model": "qwen3-tts",
                              "model_endpoint": f"{ws}/v1/audio/speech/stream", **timed}),
    }  # fmt: skip
    return [
        TargetAddress(f"stock {name}", address, Options(arguments={**arguments, "api_key": "none"}))
        for name, (address, arguments) in services.items()
        if _is_installed(address)
    ]


def _is_installed(address: str) -> bool:
    module = address.partition(":")[2].rpartition(".")[0]
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def main(
    conditions: str = "steady,stalls,breaks",
    cuts: int = 40,
    together: int = 5,
    folder: Path = Path("out"),
) -> None:
    """Print the table, and write bargein.json and bargein.html."""
    base = Condition(cuts=cuts, together=together)
    run_bargein(
        ours_and_stock(folder),
        conditions_of(conditions.split(","), base),
        1,
        Outputs(folder, folder / "bargein.json", folder / "bargein.html"),
        shlex.join(["python", "-m", "benchmarks.bargein.stock", *sys.argv[1:]]),
    )


if __name__ == "__main__":
    typer.run(main)
