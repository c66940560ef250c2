"""What all routes share: the synthesizer, the open sockets, the figures, the state of the drain.

The shell starts and ends things; it answers no request and knows no engine.
"""

import asyncio
import contextlib
import importlib.util
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.server.health import Watchdog
from voiceagent_tts.server.metrics import Metrics
from voiceagent_tts.synthesizer.aligner_handles import Aligners
from voiceagent_tts.synthesizer.options import Limits
from voiceagent_tts.synthesizer.supervisor import Supervisor
from voiceagent_tts.synthesizer.synthesizer import Synthesizer
from voiceagent_tts.synthesizer.word_policy import Source
from voiceagent_tts.synthesizer.worker_client import WorkerSpec
from voiceagent_tts.voices import VoiceFolder

_SHARING_CORES = {"OMP_WAIT_POLICY": "passive"}
"""On a CPU, threads that wait for a core spin by default, ten times slower where another process
has work for it (1.2 to 1.7 s a frame against 0.15, measured)."""

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The online aligner's arrays are small: more threads would only take cores from others."""

_ONLINE_EXTRA = "espeakng_loader"  # the module of extra `espeak`, which speaks the references

_LONGEST_PASS_S = 60.0
"""The forced aligner gives no sign of life during a pass; on a busy CPU one takes seconds."""

_LOADING_S = 600.0
"""A model of several gigabytes may come from a slow disk."""

CLOSE_GRACE_S = 2.0
"""A client that has not read its close by then will not read it."""

_DRAIN_INTERVAL_S = 0.02

_log = structlog.get_logger(__name__)


class OpenSocket(Protocol):
    """What the drain needs of a socket that is being served."""

    @property
    def is_speaking(self) -> bool:
        """Whether a context of this socket is still owed its `done`."""
        ...

    def drain(self, deadline_ms: int) -> None:
        """Tell the client that the server will end, and refuse new contexts."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Close the socket."""
        ...


class Shell:
    """What the routes share. Start it before the first request."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.synthesizer = Synthesizer(
            {name: Supervisor(spec) for name, spec in worker_specs(settings).items()},
            Limits(
                max_text_chars=settings.max_text_chars,
                max_audio_s=settings.max_audio_s,
                context_idle_s=settings.context_idle_s,
                max_lead_s=settings.max_lead_s,
            ),
            self.metrics.observe,
            VoiceFolder(settings.voices_folder.expanduser()),
            aligners_of(settings),
        )
        self.watchdog = Watchdog(self.synthesizer, settings.watchdog_s)
        self.sessions: set[OpenSocket] = set()
        self.is_draining = False
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the workers and speak once.

        Raises:
            EngineError: an engine cannot start.
        """
        await self.synthesizer.start()
        self.metrics.watch(self.synthesizer)
        self.metrics.sockets_open.set_function(lambda: len(self.sessions))
        await self.watchdog.probe()
        self._watching = asyncio.create_task(self.watchdog.run())

    async def drain(self, drain_s: float, is_hurried: Callable[[], bool] = lambda: False) -> None:
        """Refuse new contexts, let those that speak finish, then close the sockets (1001).

        Returns when every socket has its last message and its close, or takes none for 2 s.
        """
        self.is_draining = True
        deadline = time.monotonic() + drain_s
        for session in list(self.sessions):
            session.drain(round(drain_s * 1000))
        while self._is_speaking() and time.monotonic() < deadline and not is_hurried():
            await asyncio.sleep(_DRAIN_INTERVAL_S)
        for session in list(self.sessions):
            session.close(1001, "the server has drained")
        deadline = time.monotonic() + CLOSE_GRACE_S
        while self.sessions and time.monotonic() < deadline:
            await asyncio.sleep(_DRAIN_INTERVAL_S)

    def _is_speaking(self) -> bool:
        # A context may have ended for the synthesizer while its last message waits for a socket.
        in_sockets = any(session.is_speaking for session in self.sessions)
        return in_sockets or self.synthesizer.contexts_active > 0

    async def close(self) -> None:
        """Stop the workers; idempotent."""
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        await self.synthesizer.close()


def worker_specs(settings: Settings) -> dict[str, WorkerSpec]:
    """The workers to run, by name: one, or those of each model, on each device."""
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
    """Who finds the times of words where an engine does not tell them.

    Raises:
        InvalidRequestError: the aligner that was asked for cannot run here.
    """
    supervisors: dict[Source, list[Supervisor]] = {}
    if settings.aligner == "online" or (settings.aligner == "auto" and _can_follow()):
        spec = WorkerSpec("online", environment=_ONE_THREAD)
        supervisors[Source.ONLINE] = [Supervisor(spec) for _ in range(settings.aligners)]
    if settings.aligner == "forced" or (settings.aligner == "auto" and settings.aligner_model):
        supervisors[Source.FORCED] = [Supervisor(_forced_spec(settings))]
    return Aligners(
        supervisors,
        is_required=settings.aligner in ("online", "forced"),
        uses_native_words=settings.aligner != "off",
    )


def _can_follow() -> bool:
    return importlib.util.find_spec(_ONLINE_EXTRA) is not None


def _forced_spec(settings: Settings) -> WorkerSpec:
    if settings.aligner_model is None:
        raise InvalidRequestError(
            "aligner forced: expected aligner_model, the folder or id of a Qwen3-ForcedAligner, "
            "or one that was downloaded; found none"
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
