"""The kind of engine that speaks with Qwen3-TTS."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from voiceagent_tts.seam.engine_kind import (
    ABSENT,
    LOADING_S,
    SHARING_CORES,
    EngineKind,
    MakeEngine,
    PublishedModel,
    WorkerSpec,
    devices_of,
)

if TYPE_CHECKING:
    from voiceagent_tts.config import Settings


class Qwen3Kind(EngineKind):
    """Has `workers` workers for each model on each device."""

    name = "qwen3"
    metrics = {
        "gpu_memory_used_bytes": "Memory of the GPU in use, by all programs.",
        "gpu_memory_total_bytes": "Memory of the GPU.",
        "gpu_memory_reserved_bytes": "Memory of the GPU that PyTorch has reserved for this worker.",
        "gpu_utilization_ratio": "Share of the last moments in which the GPU ran a kernel.",
        "used_rows": "Rows in use.",
        "starved_rows": "Rows in use that wait for text.",
        "lowest_lead_seconds": "Shortest remaining audio of any listener.",
        "load_ratio": "Step time divided by frame time; above 1 the device is too slow.",
        "retry_after_seconds": "Retry delay that a refused context is given.",
        "starts_total": "Sequences started.",
        "underruns_total": "Gaps that listeners heard because frames were late.",
        "underrun_seconds_total": "Length of these gaps.",
        "discarded_seconds_total": "Audio synthesized and then dropped by a cancel.",
        "refused_total": "Contexts refused.",
        "lost_texts_total": "Contexts that failed because the model had lost the text.",
        "steps_total": "Steps that made frames.",
        "frames_total": "Frames made.",
        "prefill_seconds_total": "Device time in prefill.",
        "predictor_seconds_total": "Device time in the code predictor.",
        "talker_seconds_total": "Device time in the talker.",
        "codec_seconds_total": "Device time in the codec.",
        "host_seconds_total": "Step time in which the device was idle.",
        "free_pages": "Free pages of key-value memory.",
        "graph_memory_bytes": "Memory of captured CUDA graphs.",
        "has_graphs": "1 while captured CUDA graphs are replayed.",
        "has_fused_kernels": "1 while fused kernels run.",
        "has_fused_codec": "1 while the codec's fused kernels run.",
        "prefix_cache_hits_total": "Prompt prefixes found in the cache.",
        "prefix_cache_misses_total": "Prompt prefixes computed.",
        "clone_cache_hits_total": "Cloned voices found in the cache.",
        "clone_cache_misses_total": "Cloned voices loaded from disk.",
    }

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
