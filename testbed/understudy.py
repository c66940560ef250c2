"""A Pipecat service that another one may fail over to, in a pipeline with both."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

from pipecat.frames.frames import Frame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.service_switcher import ServiceSwitcher, ServiceSwitcherStrategyFailover
from pipecat.pipeline.worker import PipelineWorker
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService

from voiceagent_tts.plugins.demo.pipeline import running


class Understudy(TTSService):
    """Takes over, and notes what it is asked to say."""

    def __init__(self) -> None:
        super().__init__(
            settings=TTSSettings(model=None, voice=None, language=None), push_start_frame=True
        )
        self.said: list[str] = []

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        self.said.append(text)
        yield None


@dataclass(frozen=True, slots=True)
class Switching:
    """A pipeline with a service and its understudy."""

    worker: PipelineWorker
    second: Understudy
    asked: "asyncio.Queue[tuple[str, str]]"
    switched_at_s: "asyncio.Future[float]"


@contextlib.asynccontextmanager
async def switching(first: TTSService, *stages: Any, **options: Any) -> AsyncIterator[Switching]:
    """Run such a pipeline within the block."""
    loop, second = asyncio.get_running_loop(), Understudy()
    asked, switched_at_s = asyncio.Queue[tuple[str, str]](), loop.create_future()
    switcher = ServiceSwitcher([first, second], ServiceSwitcherStrategyFailover)

    @first.event_handler("on_tts_request")
    async def on_tts_request(_: object, context_id: str, text: str) -> None:
        asked.put_nowait((context_id, text))

    @switcher.strategy.event_handler("on_service_switched")
    async def on_switched(*_: object) -> None:
        if not switched_at_s.done():
            switched_at_s.set_result(loop.time())

    pipeline = Pipeline([switcher, *stages])
    options = {"cancel_on_idle_timeout": False, "enable_rtvi": False} | options
    worker = PipelineWorker(pipeline, **options)
    async with running(worker):
        yield Switching(worker, second, asked, switched_at_s)
