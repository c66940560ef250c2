"""The worker processes for the settings: engines and aligners."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.seam.engine_kind import (
    LOADING_S,
    ONE_THREAD,
    SHARING_CORES,
    WorkerSpec,
    devices_of,
    kind_of,
)
from voiceagent_tts.synthesizer.events import Source
from voiceagent_tts.synthesizer.workers import Supervisor

if TYPE_CHECKING:
    from voiceagent_tts.word_times.processes import Aligners

_LONGEST_PASS_S = 60.0
"""The forced aligner sends no heartbeat during a pass, which takes seconds on a busy CPU."""

_MOST_ALIGNERS, _PROCESSORS_OF_ALIGNER = 4, 4
"""One process of the online aligner keeps up with 113 s of audio in a second, beside an H200."""


def worker_specs(settings: Settings) -> dict[str, WorkerSpec]:
    """The engine workers by name; the first one has the default voice."""
    # The command line replaces None by the best engine of the machine.
    return kind_of(settings.engine or "espeak").worker_specs(settings)


def overflow_of(settings: Settings) -> Supervisor | None:
    """The worker for contexts that the engine has no row for; None without one."""
    if not settings.overflow:
        return None
    (spec,) = kind_of("openai").worker_specs(settings).values()
    return Supervisor(spec)


def aligners_of(settings: Settings) -> "Callable[[], Aligners]":
    """What makes the aligners, which find word times for engines that do not report them.

    Raises:
        InvalidRequestError: the aligner in the settings cannot run on this machine.
    """
    specs: dict[Source, list[WorkerSpec]] = {}
    has_references = kind_of("espeak").is_installed()
    if settings.aligner == "online" or (settings.aligner == "auto" and has_references):
        spec = WorkerSpec("online", environment=ONE_THREAD)
        count = settings.aligners or _usual_aligners(os.cpu_count() or 1)
        specs[Source.ONLINE] = [spec] * count
    if settings.aligner == "forced" or (settings.aligner == "auto" and settings.aligner_model):
        specs[Source.FORCED] = [_forced_spec(settings)]

    def make() -> "Aligners":
        from voiceagent_tts.word_times.processes import Aligners  # here: few engines need them

        supervisors = {source: [*map(Supervisor, each)] for source, each in specs.items()}
        return Aligners(supervisors, is_required=settings.aligner in ("online", "forced"))

    return make


def _usual_aligners(processors: int) -> int:
    """Default number of online aligner processes on this machine."""
    return max(1, min(processors // _PROCESSORS_OF_ALIGNER, _MOST_ALIGNERS))


def _forced_spec(settings: Settings) -> WorkerSpec:
    if settings.aligner_model is None:
        raise InvalidRequestError(
            "aligner forced: expected the folder or id of a Qwen3-ForcedAligner in aligner_model, "
            "or a downloaded one, got neither; try `voiceagent-tts models download`"
        )
    return WorkerSpec(
        "forced",
        forced_options(settings),
        ready_timeout_s=LOADING_S,
        heartbeat_timeout_s=_LONGEST_PASS_S,
        environment=SHARING_CORES,
    )


def forced_options(settings: Settings) -> dict[str, Any]:
    """Fields of `plugins.forced.load.ForcedOptions`."""
    engines = devices_of(settings) * settings.workers * len(settings.models)
    return {
        "model": settings.aligner_model,
        "device": settings.aligner_device,
        "engine_devices": engines if settings.engine == "qwen3" else [],
        "threads": settings.threads,
    }
