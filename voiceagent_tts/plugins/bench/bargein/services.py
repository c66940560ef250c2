"""The services that speak here without a key: ours, and stock ones at this server's other paths."""

import importlib.util
from collections.abc import Iterator
from typing import Any

from voiceagent_tts.client import DEFAULT_PATH
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.target import Options

_VOICE, _OPENAI_VOICE = "default", "nova"
_LANGUAGE = "{language}"


def own_services(url: str) -> list[TargetAddress]:
    """This project's service on both hosts, with the server at `url` (`ws://HOST:PORT/PATH`)."""
    settings = {"voice": _VOICE, "language": _LANGUAGE}
    return [
        _address(
            "ours, Pipecat",
            "pipecat:voiceagent_tts.adapters.pipecat.VoiceAgentTTSService",
            {"url": url, "settings": settings},
        ),
        _address(
            "ours, LiveKit", "livekit:voiceagent_tts.adapters.livekit.TTS", {"url": url, **settings}
        ),
    ]


def stock_services(url: str) -> list[TargetAddress]:
    """The stock services of both hosts that are installed, with the server at `url`."""
    return [address for address in _stock_services(url) if _is_installed(address)]


def _stock_services(url: str) -> Iterator[TargetAddress]:
    ws = url.removesuffix(DEFAULT_PATH)
    http = ws.replace("ws://", "http://")
    key = {"api_key": "none"}
    voice = {"voice": _VOICE, "language": _LANGUAGE}
    yield _address(
        "stock Cartesia, Pipecat",
        "pipecat:pipecat.services.cartesia.tts.CartesiaTTSService",
        {"url": f"{ws}/tts/websocket", "settings": voice, **key},
    )
    yield _address(
        "stock ElevenLabs, Pipecat",
        "pipecat:pipecat.services.elevenlabs.tts.ElevenLabsTTSService",
        {"url": ws, "settings": voice, **key},
    )
    yield _address(
        "stock OpenAI, Pipecat",
        "pipecat:pipecat.services.openai.tts.OpenAITTSService",
        {"base_url": f"{http}/v1", "settings": {"voice": _OPENAI_VOICE}, **key},
    )
    yield _address(
        "stock Cartesia, LiveKit",
        "livekit:livekit.plugins.cartesia.TTS",
        {"base_url": http, "word_timestamps": True, **voice, **key},
    )
    yield _address(
        "stock ElevenLabs, LiveKit",
        "livekit:livekit.plugins.elevenlabs.TTS",
        {"base_url": f"{http}/livekit/v1", "voice_id": _VOICE, "language": _LANGUAGE, **key},
    )
    yield _address(
        "stock OpenAI, LiveKit",
        "livekit:livekit.plugins.openai.TTS",
        {"base_url": f"{http}/v1", "voice": _OPENAI_VOICE, "response_format": "pcm", **key},
    )
    yield _address(
        "stock Baseten, LiveKit",
        "livekit:livekit.plugins.baseten.TTS",
        {
            "model": "qwen3-tts",
            "model_endpoint": f"{ws}/v1/audio/speech/stream",
            "word_timestamps": True,
            **voice,
            **key,
        },
    )


def _address(name: str, address: str, arguments: dict[str, Any]) -> TargetAddress:
    return TargetAddress(name, address, Options(arguments=arguments))


def _is_installed(address: TargetAddress) -> bool:
    module = address.address.partition(":")[2].rpartition(".")[0]
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
