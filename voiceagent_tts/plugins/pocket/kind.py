"""The kind of engine that speaks with Pocket TTS."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from voiceagent_tts.plugins.pocket import files, published
from voiceagent_tts.seam.engine_kind import (
    ABSENT,
    LOADING_S,
    SHARING_CORES,
    EngineKind,
    MakeEngine,
    PublishedModel,
    WorkerSpec,
    named,
    threads_of,
)

if TYPE_CHECKING:
    from voiceagent_tts.config import Settings


class PocketKind(EngineKind):
    """Has workers of one model for each language."""

    name = "pocket"
    natural_voices = "Pocket TTS on the CPU"

    def worker_specs(self, settings: "Settings") -> dict[str, WorkerSpec]:
        """Return the workers, each with all models."""
        models = published.models_of(settings)
        spec = WorkerSpec(
            self.name,
            {
                "models": models,
                "rows": settings.rows,
                "threads": threads_of(settings),
                "precision": settings.precision or "float32",
                "voices": str(settings.clones_folder),
            },
            ready_timeout_s=LOADING_S,
            environment=SHARING_CORES,
            group=",".join(models),
        )
        return named(self.name, [spec] * settings.workers)

    def make(self, options: dict[str, Any]) -> MakeEngine:
        """Return what makes the engine."""
        from voiceagent_tts.plugins.pocket.load import load_pocket

        return partial(load_pocket, **options)

    def is_installed(self) -> bool:
        """Whether extra `pocket` is installed."""
        return published.is_installed()

    def is_stored(self, settings: "Settings") -> bool:
        """Whether the files of all models are on this machine."""
        models = published.models_of(settings)
        return self.is_installed() and all(files.is_stored(model) for model in models)

    def fetch(self, settings: "Settings") -> "Settings":
        """Download missing files."""
        for model in published.models_of(settings):
            files.fetch(model)
        return settings

    def published_models(self) -> Iterator[PublishedModel]:
        """Yield the model of each language."""
        for name in published.LANGUAGE_MODELS if self.is_installed() else ():
            place = "downloaded" if files.is_stored(name) else ABSENT
            yield PublishedModel(name, "Pocket TTS, for CPUs", place)

    def download(self, model: str) -> str | None:
        """Download a model to where its package looks."""
        if not published.is_known(model):
            return None
        files.fetch(model)
        return ""


KIND = PocketKind()
