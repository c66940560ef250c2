"""Keeps one worker running: starts it, and restarts it when it has ended.

The contexts of a dead worker fail (`worker_client`); the next context uses the next worker.
"""

import asyncio

import structlog

from voiceagent_tts.errors import EngineError, ErrorCode, OverloadedError
from voiceagent_tts.seam.events import Capabilities
from voiceagent_tts.synthesizer.worker_client import OnFreed, WorkerClient, WorkerSpec

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 10.0

_log = structlog.get_logger(__name__)


class Supervisor:
    """Runs one worker, and replaces it when it ends.

    Args:
        spec: describes the worker's process.
        on_freed: receives, for each cancel, the seconds until the worker had freed the row.

    Attributes:
        restarts: number of replacements.
    """

    def __init__(self, spec: WorkerSpec, on_freed: OnFreed = lambda seconds: None) -> None:
        self._spec = spec
        self._on_freed = on_freed
        self._worker: WorkerClient | None = None
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self.restarts = 0

    async def start(self) -> None:
        """Start the first worker.

        Raises:
            EngineError: the worker cannot start. Later failures are retried without limit.
        """
        self._worker = await WorkerClient.start(self._spec, self._on_freed)
        self._capabilities = self._worker.capabilities
        self._task = asyncio.create_task(self._keep_running(self._worker))

    @property
    def group(self) -> str | None:
        """Name shared by workers with the same voices; None for a single worker."""
        return self._spec.group

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the worker; valid after `start`, also while it is being replaced."""
        return self._capabilities

    @property
    def worker(self) -> WorkerClient | None:
        """The running worker; None while it is being replaced."""
        is_running = self._worker is not None and not self._worker.closed.is_set()
        return self._worker if is_running else None

    async def wait_for_worker(self, timeout_s: float) -> WorkerClient:
        """Return the running worker, or the next one if it is ready within `timeout_s`.

        Raises:
            OverloadedError: with code `model_not_ready`, if none is ready in time.
        """
        if worker := self.worker:
            return worker
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self.worker is not None)
        except TimeoutError:
            raise OverloadedError(
                f"the {self._spec.engine} engine is being restarted; try again",
                code=ErrorCode.MODEL_NOT_READY,
                retry_after_ms=1000,
            ) from None
        assert self._worker is not None
        return self._worker

    async def close(self) -> None:
        """Stop the worker for good; idempotent."""
        try:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait({self._task})  # unlike the task, it raises the caller's cancel
        finally:
            if self._worker is not None:
                worker, self._worker = self._worker, None
                await worker.close()

    async def _keep_running(self, worker: WorkerClient) -> None:
        while True:
            await worker.closed.wait()
            self._worker = None
            self.restarts += 1
            _log.warning("worker_restarting", engine=self._spec.engine, restarts=self.restarts)
            worker = await self._start_again()
            async with self._changed:
                self._worker = worker
                self._changed.notify_all()

    async def _start_again(self) -> WorkerClient:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await WorkerClient.start(self._spec, self._on_freed)
            except EngineError as error:
                _log.error("worker_failed_to_start", engine=self._spec.engine, error=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
