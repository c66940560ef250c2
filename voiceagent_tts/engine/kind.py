"""The kind of engine that speaks with Qwen3-TTS."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from voiceagent_tts.seam.engine import MakeEngine
from voiceagent_tts.seam.engine_kind import (
    ABSENT,
    LOADING_S,
    SHARING_CORES,
    EngineKind,
    PublishedModel,
    WorkerSpec,
    devices_of,
)

if TYPE_CHECKING:
    from voiceagent_tts.config import Settings


class Qwen3Kind(EngineKind):
    """Has `workers` workers for each model on each device."""

    name = "qwen3"

    def worker_specs(self, settings: "Settings") -> dict[str, WorkerSpec]:
        """Return the workers of all models."""
        shared: dict[str, Any] = {
            "precision": settings.precision,
            "rows": settings.rows,
            "gpu_memory_gb": settings.gpu_memory_gb,
            "kernels": settings.kernels,
            "codec_kernels": settings.kernels,
            "is_deterministic": settings.deterministic,
            "voices": str(settings.clones_folder),
            "threads": settings.threads,
        }
        devices = [_numbered(device) for device in devices_of(settings)] * settings.workers
        specs: dict[str, WorkerSpec] = {}
        for model in settings.models:
            for number, device in enumerate(devices_of(settings) * settings.workers, start=1):
                name = model if number == 1 else f"{model}#{number}"
                sharing = len(settings.models) * devices.count(_numbered(device))
                specs[name] = WorkerSpec(
                    self.name,
                    {"model": model, "device": device, "sharing": sharing, **shared},
                    ready_timeout_s=LOADING_S,
                    environment=SHARING_CORES,
                    group=model,
                )
        return specs

    def make(self, options: dict[str, Any]) -> MakeEngine:
        """Return what makes the engine, with fewer optimizations where its GPU fails."""
        from voiceagent_tts.engine.ladder import load_lower
        from voiceagent_tts.engine.load import load_engine
        from voiceagent_tts.engine.options import Qwen3Options

        wanted = Qwen3Options(**options)
        return lambda inbox, outbox: load_lower(
            wanted, lambda allowed: load_engine(allowed, inbox, outbox)
        )

    def fetch(self, settings: "Settings") -> "Settings":
        """Download missing models; return the settings with their folders."""
        from voiceagent_tts.hub import fetch_model

        folders = tuple(str(fetch_model(model)) for model in settings.models)
        return settings.model_copy(update={"models": folders})

    def published_models(self) -> Iterator[PublishedModel]:
        """Yield the published models and the codec."""
        from voiceagent_tts.hub import PUBLISHED, parse_id, stored_folder

        for name, purpose in PUBLISHED.items():
            yield PublishedModel(name, purpose, str(stored_folder(parse_id(name)) or ABSENT))


def _numbered(device: str | None) -> str:
    """Return the name of a device with its number; the engine's choice is the first GPU."""
    return "cuda:0" if device in (None, "cuda") else device


KIND = Qwen3Kind()
