"""Where contexts go that the engines have no row for: the speech of another server."""

import asyncio

import structlog

from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.synthesizer.supervisor import Supervisor
from voiceagent_tts.synthesizer.worker_client import WorkerClient
from voiceagent_tts.voices import Voice

OVERFLOW = "overflow"
"""Name of the worker, here and in metrics."""

_RETRY_S = 10.0
"""Pause between attempts to start the worker: the upstream may be away for hours."""

_log = structlog.get_logger(__name__)


class Overflow:
    """The worker for contexts beyond capacity; the server runs without it, too.

    Args:
        supervisor: the worker.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the worker, also later; until then, contexts beyond capacity are refused."""
        if not await self._try_to_start():
            self._starting = asyncio.create_task(self._start_later())

    async def close(self) -> None:
        """Stop the worker; idempotent."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        await self.supervisor.close()

    async def _try_to_start(self) -> bool:
        try:
            await self.supervisor.start()
        except VoiceAgentError as error:
            _log.error("overflow_unavailable", error=error.message)
            return False
        return True

    async def _start_later(self) -> None:
        await asyncio.sleep(_RETRY_S)
        while not await self._try_to_start():
            await asyncio.sleep(_RETRY_S)

    @property
    def free_worker(self) -> WorkerClient | None:
        """The worker, if it runs and has a free row."""
        worker = self.supervisor.worker
        if worker is None or worker.rows_used >= worker.capabilities.max_rows:
            return None
        return worker

    def voice_like(self, voice: Voice) -> Voice:
        """The upstream's voice of this name, else its first one."""
        names = self.supervisor.capabilities.voices
        known = {name.casefold(): name for name in names}
        return Voice(known.get(voice.name.casefold(), names[0]), OVERFLOW)
