"""The kind of engine that speaks with the voices of the package hibari-tts."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from voiceagent_tts.espeak.kind import KIND as ESPEAK
from voiceagent_tts.hibari import published
from voiceagent_tts.seam.engine_kind import (
    ABSENT,
    ONE_THREAD,
    EngineKind,
    MakeEngine,
    PublishedModel,
    WorkerSpec,
    kind_of,
    named,
    threads_of,
)

if TYPE_CHECKING:
    from voiceagent_tts.config import Settings


class HibariKind(EngineKind):
    """Speaks English; an engine beside it and espeak speak the rest."""

    name = "hibari"

    def worker_specs(self, settings: "Settings") -> dict[str, WorkerSpec]:
        """Return its workers, those of the engine beside it, and espeak's."""
        spec = WorkerSpec(
            self.name,
            {"models": settings.models, "rows": settings.rows, "threads": threads_of(settings)},
            environment=ONE_THREAD,
            group=self.name,
        )
        beside = kind_of(settings.beside).worker_specs(settings) if settings.beside else {}
        return named(self.name, [spec] * settings.workers) | beside | ESPEAK.beside(settings)

    def make(self, options: dict[str, Any]) -> MakeEngine:
        """Return what makes the engine."""
        from voiceagent_tts.hibari.load import load_hibari

        return partial(load_hibari, **options)

    def is_installed(self) -> bool:
        """Whether extra `hibari` is installed."""
        return published.is_installed()

    def fetch(self, settings: "Settings") -> "Settings":
        """Download missing voices, and the files of the engine beside it."""
        for voice in settings.models:
            published.fetch(voice)
        return kind_of(settings.beside).fetch(settings) if settings.beside else settings

    def published_models(self) -> Iterator[PublishedModel]:
        """Yield the package's voices."""
        for voice in published.published_voices().values() if self.is_installed() else ():
            place = str(voice.file) if voice.file.is_file() else ABSENT
            purpose = f"hibari, a voice of {voice.language}"
            yield PublishedModel(voice.name, purpose, place, (voice.name,))

    def download(self, model: str) -> str | None:
        """Download a voice, and return its file."""
        return str(published.fetch(model)) if published.is_known(model) else None


KIND = HibariKind()
