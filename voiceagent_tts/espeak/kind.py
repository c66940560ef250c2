"""The kind of engine that is the embedded voice of espeak-ng."""

import importlib.util
from typing import TYPE_CHECKING, Any

from voiceagent_tts.seam.engine_kind import EngineKind, MakeEngine, WorkerSpec

if TYPE_CHECKING:
    from voiceagent_tts.config import Settings


class EspeakKind(EngineKind):
    """Has one worker, which needs no model."""

    name = "espeak"

    def worker_specs(self, settings: "Settings") -> dict[str, WorkerSpec]:
        """Return the one worker."""
        return {self.name: WorkerSpec(self.name)}

    def make(self, options: dict[str, Any]) -> MakeEngine:
        """Return what makes the engine."""
        from voiceagent_tts.espeak.engine import EspeakEngine

        return lambda inbox, outbox: EspeakEngine(inbox, outbox, **options)

    def is_installed(self) -> bool:
        """Whether extra `espeak` is installed: a voice, and references of the online aligner."""
        return importlib.util.find_spec("espeakng_loader") is not None

    def beside(self, settings: "Settings") -> dict[str, WorkerSpec]:
        """Return its worker for the languages that a better engine lacks, if it is installed."""
        return self.worker_specs(settings) if self.is_installed() else {}


KIND = EspeakKind()
