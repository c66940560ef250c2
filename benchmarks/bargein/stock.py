"""Interrupts ours and the stock services of both hosts, all with our server: `make bench-bargein`.

The stock services speak its other dialects, so that none of them needs a key.
"""

import contextlib
import importlib.util
import shlex
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
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

_VOICE, _OPENAI_VOICE = "default", "nova"
_LANGUAGE = "{language}"


@contextlib.asynccontextmanager
async def ours_and_stock(folder: Path) -> AsyncIterator[Sequence[TargetAddress]]:
    """Yield our service and the stock ones, with a server of the embedded voice."""
    async with embedded_server(folder) as server:
        yield [*own_services(server.url), *stock_services(server.url)]


def stock_services(url: str) -> list[TargetAddress]:
    """The stock services of both hosts that are installed, with the server at `url`."""
    return [address for address in _stock_services(url) if _is_installed(address)]


def _stock_services(url: str) -> Iterator[TargetAddress]:
    ws = url.removesuffix(DEFAULT_PATH)
    http = ws.replace("ws://", "http://")
    voice = {"voice": _VOICE, "language": _LANGUAGE}
    pipecat: dict[str, tuple[str, dict[str, Any]]] = {
        "Cartesia": ("cartesia.tts.CartesiaTTSService",
                     {"url": f"{ws}/tts/websocket", "settings": voice}),
        "ElevenLabs": ("elevenlabs.tts.ElevenLabsTTSService", {"url": ws, "settings": voice}),
        "OpenAI": ("openai.tts.OpenAITTSService",
                   {"base_url": f"{http}/v1", "settings": {"voice": _OPENAI_VOICE}}),
    }  # fmt: skip
    livekit: dict[str, dict[str, Any]] = {
        "Cartesia": {"base_url": http, "word_timestamps": True, **voice},
        "ElevenLabs": {
            "base_url": f"{http}/livekit/v1", "voice_id": _VOICE, "language": _LANGUAGE,
        },
        "OpenAI": {
            "base_url": f"{http}/v1", "voice": _OPENAI_VOICE, "response_format": "pcm",
        },
        "Baseten": {
            "model": "qwen3-tts", "model_endpoint": f"{ws}/v1/audio/speech/stream",
            "word_timestamps": True, **voice,
        },
    }  # fmt: skip
    for name, (path, arguments) in pipecat.items():
        yield _address(f"stock {name}, Pipecat", f"pipecat:pipecat.services.{path}", arguments)
    for name, arguments in livekit.items():
        module = f"livekit:livekit.plugins.{name.lower()}.TTS"
        yield _address(f"stock {name}, LiveKit", module, arguments)


def _address(name: str, address: str, arguments: dict[str, Any]) -> TargetAddress:
    return TargetAddress(name, address, Options(arguments={**arguments, "api_key": "none"}))


def _is_installed(address: TargetAddress) -> bool:
    module = address.address.partition(":")[2].rpartition(".")[0]
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
