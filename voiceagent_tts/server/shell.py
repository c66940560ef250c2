"""What all routes share: the synthesizer, the open sockets, the figures, the state of the drain.

The shell starts and ends things; it answers no request and knows no engine.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Protocol

from voiceagent_tts.config import Settings
from voiceagent_tts.server.health import Watchdog
from voiceagent_tts.server.metrics import Metrics
from voiceagent_tts.synthesizer import Limits, Synthesizer
from voiceagent_tts.voices import VoiceFolder
from voiceagent_tts.worker.client import WorkerSpec
from voiceagent_tts.worker.supervisor import Supervisor

_SHARING_CORES = {"OMP_WAIT_POLICY": "passive"}
"""On a CPU, threads that wait for a core spin by default, ten times slower where another process
has work for it (1.2 to 1.7 s a frame against 0.15, measured)."""

_LOADING_S = 600.0
"""A model of several gigabytes may come from a slow disk."""


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
        """Refuse new contexts, let those that speak finish, then close the sockets (1001)."""
        self.is_draining = True
        deadline = time.monotonic() + drain_s
        for session in list(self.sessions):
            session.drain(round(drain_s * 1000))
        while self._is_speaking() and time.monotonic() < deadline and not is_hurried():
            await asyncio.sleep(0.02)
        for session in list(self.sessions):
            session.close(1001, "the server has drained")

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
    """The workers to run, by name: one, or one a model."""
    if settings.engine == "espeak":
        return {"espeak": WorkerSpec("espeak", throttle=settings.throttle)}
    shared = {
        "device": settings.device,
        "precision": settings.precision,
        "rows": settings.rows,
        "voices": str(settings.voices_folder.expanduser()),
        "threads": settings.threads,
    }
    return {
        model: WorkerSpec(
            "qwen3",
            {"model": model, **shared},
            settings.throttle,
            ready_timeout_s=_LOADING_S,
            environment=_SHARING_CORES,
        )
        for model in settings.models
    }
