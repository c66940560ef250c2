"""The worker processes that the settings ask for: engines, and aligners."""

import importlib.util

import structlog

from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.synthesizer.aligner_handles import Aligners
from voiceagent_tts.synthesizer.supervisor import Supervisor
from voiceagent_tts.synthesizer.word_policy import Source
from voiceagent_tts.synthesizer.worker_client import WorkerSpec

_SHARING_CORES = {"OMP_WAIT_POLICY": "passive"}
"""OpenMP threads spin by default while they wait. On a CPU that other processes use, that is ten
times slower (1.2 to 1.7 s per frame instead of 0.15 s, measured)."""

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The online aligner's arrays are small: more threads would only use cores that others need."""

_ONLINE_EXTRA = "espeakng_loader"  # the module of extra `espeak`, which speaks the references

_LONGEST_PASS_S = 60.0
"""The forced aligner sends no heartbeat during a pass, which takes seconds on a busy CPU."""

_LOADING_S = 600.0
"""A model of several gigabytes may be on a slow disk."""

_log = structlog.get_logger(__name__)


def worker_specs(settings: Settings) -> dict[str, WorkerSpec]:
    """The engine workers by name: one for espeak, else one or more per model and device."""
    if settings.engine == "espeak":
        return {"espeak": WorkerSpec("espeak", throttle=settings.throttle)}
    shared = {
        "precision": settings.precision,
        "rows": settings.rows,
        "capacity": settings.capacity,
        "gpu_memory_gb": settings.gpu_memory_gb,
        "codec_device": settings.codec_device,
        "attention": settings.attention,
        "kernels": settings.kernels,
        "has_graphs": settings.graphs,
        "quantize": settings.quantize,
        "has_tf32": settings.tf32,
        "is_deterministic": settings.deterministic,
        "voices": str(settings.voices_folder.expanduser()),
        "threads": settings.threads,
        "initial_frames": settings.initial_frames,
        "ramp": settings.ramp,
        "max_load": settings.max_load,
    }
    devices = [f"cuda:{gpu}" for gpu in settings.gpus] or [settings.device]
    specs: dict[str, WorkerSpec] = {}
    for model in settings.models:
        for number, device in enumerate(devices * settings.workers, start=1):
            name = model if number == 1 else f"{model}#{number}"
            specs[name] = WorkerSpec(
                "qwen3",
                {"model": model, "device": device, **shared},
                settings.throttle,
                ready_timeout_s=_LOADING_S,
                environment=_SHARING_CORES,
                group=model,
            )
    return specs


def aligners_of(settings: Settings) -> Aligners:
    """The aligners, which find the times of words for engines that do not report them.

    Raises:
        InvalidRequestError: the aligner in the settings cannot run on this machine.
    """
    supervisors: dict[Source, list[Supervisor]] = {}
    if settings.aligner == "online" or (settings.aligner == "auto" and _can_align_online()):
        spec = WorkerSpec("online", environment=_ONE_THREAD)
        supervisors[Source.ONLINE] = [Supervisor(spec) for _ in range(settings.aligners)]
    if settings.aligner == "forced" or (settings.aligner == "auto" and settings.aligner_model):
        supervisors[Source.FORCED] = [Supervisor(_forced_spec(settings))]
    return Aligners(
        supervisors,
        is_required=settings.aligner in ("online", "forced"),
        uses_native_words=settings.aligner != "off",
    )


def _can_align_online() -> bool:
    return importlib.util.find_spec(_ONLINE_EXTRA) is not None


def _forced_spec(settings: Settings) -> WorkerSpec:
    if settings.aligner_model is None:
        raise InvalidRequestError(
            "aligner forced: expected the folder or id of a Qwen3-ForcedAligner in aligner_model, "
            "or a downloaded one, got neither; try `voiceagent-tts models download`"
        )
    engine_device = None
    if settings.engine == "qwen3":
        engine_device = settings.device or "cuda"
        if settings.aligner_device in ("cuda", engine_device) and engine_device != "cpu":
            _log.warning("aligner_shares_gpu", device=engine_device)
    options = {
        "model": settings.aligner_model,
        "device": settings.aligner_device or ("cpu" if settings.gpus else None),
        "engine_device": engine_device or "cpu",
        "threads": settings.threads,
    }
    return WorkerSpec(
        "forced",
        options,
        ready_timeout_s=_LOADING_S,
        heartbeat_timeout_s=_LONGEST_PASS_S,
        environment=_SHARING_CORES,
    )
