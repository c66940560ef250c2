"""Runs a Pipecat pipeline for as long as it is needed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from pipecat.pipeline.worker import PipelineWorker
from pipecat.workers.runner import WorkerRunner


@contextlib.asynccontextmanager
async def running(worker: PipelineWorker) -> AsyncIterator["asyncio.Task[None]"]:
    """Run a pipeline within the block, which begins when all of it has started; yields its task."""
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def on_started(*_: object) -> None:
        started.set()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    task = asyncio.create_task(runner.run())
    try:
        await started.wait()
        yield task
    finally:
        await worker.cancel()
        await task
