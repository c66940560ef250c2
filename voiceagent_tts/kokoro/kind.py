"""The kind of engine that speaks with Kokoro-82M."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from voiceagent_tts.espeak.kind import KIND as ESPEAK
from voiceagent_tts.kokoro import published
from voiceagent_tts.seam.engine_kind import (
    ABSENT,
    LOADING_S,
    ONE_THREAD,
    EngineKind,
    MakeEngine,
    PublishedModel,
    WorkerSpec,
    devices_of,
    named,
    threads_of,
)

if TYPE_CHECKING:
    from voiceagent_tts.config import Settings


class KokoroKind(EngineKind):
    """Speaks seven languages, alone or beside hibari; espeak speaks the rest."""

    name = published.NAME

    def worker_specs(self, settings: "Settings") -> dict[str, WorkerSpec]:
        """Return its workers, and espeak's."""
        specs = [
            WorkerSpec(
                self.name,
                {
                    "model": _folder(settings),
                    "rows": settings.rows,
                    "threads": threads_of(settings),
                    "device": device,
                },
                ready_timeout_s=LOADING_S,
                environment=ONE_THREAD,
                group=self.name,
            )
            for device in devices_of(settings) * settings.workers
        ]
        return named(self.name, specs) | ESPEAK.beside(settings)

    def make(self, options: dict[str, Any]) -> MakeEngine:
        """Return what makes the engine."""
        from voiceagent_tts.kokoro.load import load_kokoro

        return partial(load_kokoro, **options)

    def is_installed(self) -> bool:
        """Whether extra `kokoro` is installed."""
        return published.is_installed()

    def is_stored(self, settings: "Settings") -> bool:
        """Whether the published files are on this machine."""
        return published.is_stored()

    def fetch(self, settings: "Settings") -> "Settings":
        """Download the published files, unless the settings name a folder."""
        published.find(_folder(settings))
        return settings

    def published_models(self) -> Iterator[PublishedModel]:
        """Yield the published files as one model."""
        if self.is_installed():
            place = "downloaded" if published.is_stored() else ABSENT
            voices = tuple(voice.name for voice in published.SPOKEN)
            yield PublishedModel(self.name, "Kokoro, voices of seven languages", place, voices)

    def download(self, model: str) -> str | None:
        """Download the published files, and return the one of the network."""
        return str(published.find(None).model) if model == self.name else None


def _folder(settings: "Settings") -> str | None:
    """Folder with its files; None for the published ones, and where `models` are hibari's."""
    return settings.models[0] if settings.models and settings.engine == "kokoro" else None


KIND = KokoroKind()
