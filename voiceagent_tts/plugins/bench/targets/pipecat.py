"""A Pipecat service in a pipeline of its own: what an agent gets, the adapter included.

Text goes in as a language model's frames do. A frame of our own follows each turn; services send it
on after the turn's audio, which is the end of the utterance.
"""

import asyncio
import contextlib
from dataclasses import dataclass

from pipecat.frames.frames import ControlFrame as PipecatControlFrame
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.bench.recorder import Recorder
from voiceagent_tts.plugins.bench.targets.classes import ServiceClass
from voiceagent_tts.plugins.bench.targets.target import Connection
from voiceagent_tts.plugins.bench.utterance import Request
from voiceagent_tts.plugins.demo.pipeline import running

_START_S = 30.0


@dataclass
class _TurnEnd(PipecatControlFrame):
    """Follows all frames of a turn."""

    number: int = 0


class PipecatTarget:
    """A class of services.

    Raises:
        InvalidRequestError: there is no such class.
        ModuleNotFoundError: a package that its module needs is missing.
    """

    def __init__(self, service: ServiceClass) -> None:
        service.load()
        self._service = service

    async def connect(self, *, is_measured: bool = False) -> Connection:
        """Start a pipeline with one service."""
        connection = _PipecatConnection(self._service.make())
        await connection.open()
        return connection


class _PipecatConnection:
    """A running pipeline; the reader is its last processor."""

    def __init__(self, service: FrameProcessor) -> None:
        self._reader = _Reader()
        self._worker = PipelineWorker(
            Pipeline([service, self._reader]),
            params=PipelineParams(audio_out_sample_rate=SAMPLE_RATE_HZ),
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )
        self._stack = contextlib.AsyncExitStack()
        self._running: asyncio.Task[None] | None = None
        self._turn = 0

    async def open(self) -> None:
        async with asyncio.timeout(_START_S):
            self._running = await self._stack.enter_async_context(running(self._worker))

    @property
    def is_usable(self) -> bool:
        return self._running is not None and not self._running.done()

    async def start(self, request: Request, recorder: Recorder) -> None:
        self._turn += 1
        self._reader.begin(recorder, self._turn)
        await self._worker.queue_frame(LLMFullResponseStartFrame())

    async def send(self, text: str) -> None:
        await self._worker.queue_frame(LLMTextFrame(text))

    async def end(self) -> None:
        await self._worker.queue_frames([LLMFullResponseEndFrame(), _TurnEnd(number=self._turn)])

    async def cancel(self) -> None:
        # An interruption, as a user who speaks causes it.
        await self._worker.queue_frame(InterruptionFrame())

    async def aclose(self) -> None:
        await self._stack.aclose()


class _Reader(FrameProcessor):
    """Tells the recorder what the service pushes."""

    def __init__(self) -> None:
        super().__init__()
        self._recorder: Recorder | None = None
        self._turn = 0

    def begin(self, recorder: Recorder, turn: int) -> None:
        self._recorder, self._turn = recorder, turn

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if self._recorder is not None:
            self._record(frame, self._recorder)
        await self.push_frame(frame, direction)

    def _record(self, frame: Frame, recorder: Recorder) -> None:
        match frame:
            case TTSAudioRawFrame():
                recorder.audio(frame.audio, frame.sample_rate)
            case InterruptionFrame():
                recorder.confirm()
            case _TurnEnd(number=number) if number == self._turn:
                recorder.finish()
            case ErrorFrame():
                recorder.fail("service_error")
            case _:
                pass
