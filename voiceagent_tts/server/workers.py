"""The worker processes for the settings: engines and aligners."""

import importlib.util
import os
from collections.abc import Sequence
from typing import Any

from voiceagent_tts.config import UPSTREAM_KEY, Settings
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.synthesizer.aligners import Aligners
from voiceagent_tts.synthesizer.events import Source
from voiceagent_tts.synthesizer.workers import Supervisor, WorkerSpec

_SHARING_CORES = {"OMP_WAIT_POLICY": "passive"}
"""OpenMP threads spin by default while they wait. On a CPU that other processes use, that is ten
times slower (1.2 to 1.7 s per frame instead of 0.15 s, measured)."""

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The arrays of the online aligner and of hibari's signal processing are small: more threads would
only use cores that others need."""

_ESPEAK = "espeakng_loader"  # the module of extra `espeak`

_LONGEST_PASS_S = 60.0
"""The forced aligner sends no heartbeat during a pass, which takes seconds on a busy CPU."""

_MOST_ALIGNERS, _PROCESSORS_OF_ALIGNER = 4, 4
"""One process of the online aligner keeps up with 113 s of audio in a second, beside an H200."""

_LOADING_S = 600.0
"""A model of several gigabytes may be on a slow disk."""


def worker_specs(settings: Settings) -> dict[str, WorkerSpec]:
    """The engine workers by name.

    espeak has one, Pocket TTS, hibari and Kokoro as many as `workers` says, and Qwen3-TTS that many
    per model and device. The first one has the default voice.
    """
    match settings.engine:
        case "qwen3":
            return _qwen3_specs(settings)
        case "pocket":
            return _pocket_specs(settings)
        case "hibari":
            beside = _kokoro_specs(settings) if settings.beside == "kokoro" else {}
            return _hibari_specs(settings) | beside | _espeak_specs()
        case "kokoro":
            return _kokoro_specs(settings) | _espeak_specs()
        case "openai":
            return {"openai": _upstream_spec(settings, settings.rows)}
        case "espeak" | None:  # the command line replaces None by the best engine of the machine
            return {"espeak": WorkerSpec("espeak")}


def _espeak_specs() -> dict[str, WorkerSpec]:
    """The embedded voice, for the languages that a better one lacks."""
    if not is_espeak_installed():
        return {}
    return {"espeak": WorkerSpec("espeak")}


def _pocket_specs(settings: Settings) -> dict[str, WorkerSpec]:
    models = settings.pocket_models
    spec = WorkerSpec(
        "pocket",
        {
            "models": models,
            "rows": settings.rows,
            "threads": _threads(settings),
            "precision": settings.precision or "float32",
            "voices": str(settings.clones_folder),
        },
        ready_timeout_s=_LOADING_S,
        environment=_SHARING_CORES,
        group=",".join(models),
    )
    return _named("pocket", [spec] * settings.workers)


def _hibari_specs(settings: Settings) -> dict[str, WorkerSpec]:
    spec = WorkerSpec(
        "hibari",
        {"models": settings.models, "rows": settings.rows, "threads": _threads(settings)},
        environment=_ONE_THREAD,
        group="hibari",
    )
    return _named("hibari", [spec] * settings.workers)


def _kokoro_specs(settings: Settings) -> dict[str, WorkerSpec]:
    specs = [
        WorkerSpec(
            "kokoro",
            {
                "model": settings.kokoro_folder,
                "rows": settings.rows,
                "threads": _threads(settings),
                "device": device,
            },
            ready_timeout_s=_LOADING_S,
            environment=_ONE_THREAD,
            group="kokoro",
        )
        for device in _devices(settings) * settings.workers
    ]
    return _named("kokoro", specs)


def _threads(settings: Settings) -> int:
    """CPU threads of each worker: its share of the cores, unless set."""
    return settings.threads or max(1, (os.cpu_count() or 1) // settings.workers)


def _named(name: str, specs: Sequence[WorkerSpec]) -> dict[str, WorkerSpec]:
    """Workers of one engine by name: `name`, `name#2` and so on."""
    names = [name, *(f"{name}#{number}" for number in range(2, len(specs) + 1))]
    return dict(zip(names, specs, strict=True))


def overflow_of(settings: Settings) -> Supervisor | None:
    """The worker for contexts that the engine has no row for; None without one."""
    return Supervisor(_upstream_spec(settings, None)) if settings.overflow else None


def _upstream_spec(settings: Settings, rows: int | None) -> WorkerSpec:
    key = settings.upstream_key
    return WorkerSpec(
        "openai",
        {
            "url": settings.upstream,
            "model": settings.upstream_model,
            "voices": settings.upstream_voices,
            "fields": settings.upstream_fields or {},
            "rows": rows,
            "chars_per_day": settings.upstream_chars_per_day,
        },
        # Not among the options, which every user of the machine can read.
        environment={UPSTREAM_KEY: "" if key is None else key.get_secret_value()},
    )


def _qwen3_specs(settings: Settings) -> dict[str, WorkerSpec]:
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
    devices = [_numbered(device) for device in _devices(settings)] * settings.workers
    specs: dict[str, WorkerSpec] = {}
    for model in settings.models:
        for number, device in enumerate(_devices(settings) * settings.workers, start=1):
            name = model if number == 1 else f"{model}#{number}"
            sharing = len(settings.models) * devices.count(_numbered(device))
            options = {"model": model, "device": device, "sharing": sharing, **shared}
            specs[name] = WorkerSpec(
                "qwen3",
                options,
                ready_timeout_s=_LOADING_S,
                environment=_SHARING_CORES,
                group=model,
            )
    return specs


def _devices(settings: Settings) -> list[str | None]:
    """The devices of Qwen3-TTS, one for each worker of a model; None for the engine's choice."""
    return list(settings.device) or [None]


def _numbered(device: str | None) -> str:
    """Return the name of a device with its number; the engine's choice is the first GPU."""
    return "cuda:0" if device in (None, "cuda") else device


def aligners_of(settings: Settings) -> Aligners:
    """The aligners, which find the times of words for engines that do not report them.

    Raises:
        InvalidRequestError: the aligner in the settings cannot run on this machine.
    """
    supervisors: dict[Source, list[Supervisor]] = {}
    if settings.aligner == "online" or (settings.aligner == "auto" and is_espeak_installed()):
        spec = WorkerSpec("online", environment=_ONE_THREAD)
        count = settings.aligners or _usual_aligners(os.cpu_count() or 1)
        supervisors[Source.ONLINE] = [Supervisor(spec) for _ in range(count)]
    if settings.aligner == "forced" or (settings.aligner == "auto" and settings.aligner_model):
        supervisors[Source.FORCED] = [Supervisor(_forced_spec(settings))]
    return Aligners(
        supervisors,
        is_required=settings.aligner in ("online", "forced"),
        uses_native_words=settings.aligner != "off",
    )


def _usual_aligners(processors: int) -> int:
    """Default number of online aligner processes on this machine."""
    return max(1, min(processors // _PROCESSORS_OF_ALIGNER, _MOST_ALIGNERS))


def is_espeak_installed() -> bool:
    """Whether extra `espeak` is installed: a voice, and the references of the online aligner."""
    return importlib.util.find_spec(_ESPEAK) is not None


def _forced_spec(settings: Settings) -> WorkerSpec:
    if settings.aligner_model is None:
        raise InvalidRequestError(
            "aligner forced: expected the folder or id of a Qwen3-ForcedAligner in aligner_model, "
            "or a downloaded one, got neither; try `voiceagent-tts models download`"
        )
    return WorkerSpec(
        "forced",
        forced_options(settings),
        ready_timeout_s=_LOADING_S,
        heartbeat_timeout_s=_LONGEST_PASS_S,
        environment=_SHARING_CORES,
    )


def forced_options(settings: Settings) -> dict[str, Any]:
    """Fields of `plugins.forced.load.ForcedOptions`."""
    engines = _devices(settings) * settings.workers * len(settings.models)
    return {
        "model": settings.aligner_model,
        "device": settings.aligner_device,
        "engine_devices": engines if settings.engine == "qwen3" else [],
        "threads": settings.threads,
    }
