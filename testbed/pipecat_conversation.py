"""Run a real Pipecat pipeline around the service, with a transport that plays in real time."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

from pipecat.frames.frames import (
    BotStoppedSpeakingFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    MetricsFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
)
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    AssistantTurnStoppedMessage,
    LLMContextAggregatorPair,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.tts_service import TTSService
from pipecat.workers.runner import WorkerRunner

from testbed.server_process import ServerProcess
from testbed.waiting import PATIENCE_S, MovedError
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.plugins.demo.realtime_file_transport import RealtimeFileTransport
from voiceagent_tts.server.serve import RunningServer

HEARD_SAMPLES = 480
"""Played length from which a word counts as heard."""
_IN_FLIGHT_S = 0.04
"""Longest time that a word or its audio takes from the service to the history or the loudspeaker,
while the machine does not hold them up."""

ENGLISH = VoiceAgentTTSService.Settings(voice="default", language="en")


def is_exact_part(text: str) -> Callable[[tuple[str, str]], bool]:
    """Whether what a history has and what was heard are one, and some of `text` but not all."""
    return lambda texts: texts[0] == texts[1] and texts[0] not in ("", text)


class Conversation:
    """A running pipeline: makes replies, interrupts them, and reads them in the history."""

    def __init__(self, tts: TTSService, **options: Any) -> None:
        self.tts = tts
        self.transport = RealtimeFileTransport()
        self.context = LLMContext()
        aggregators = LLMContextAggregatorPair(self.context)
        self.words: dict[str, list[WordTimestamp]] = {}
        self.texts: dict[str, str] = {}
        self.frames: list[Frame] = []
        self.errors: list[ErrorFrame] = []
        self._turns_begun: asyncio.Queue[None] = asyncio.Queue()
        self._turns: asyncio.Queue[AssistantTurnStoppedMessage] = asyncio.Queue()
        self._spoke: asyncio.Queue[str] = asyncio.Queue()
        self._changed = asyncio.Condition()
        self.worker = PipelineWorker(
            Pipeline([tts, self.transport.output(), aggregators.assistant()]),
            params=PipelineParams(enable_metrics=True, enable_usage_metrics=True),
            observers=[_Watcher(self)],
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
            **options,
        )

        @aggregators.assistant().event_handler("on_assistant_turn_started")
        async def on_turn_started(_: object) -> None:
            self._turns_begun.put_nowait(None)

        @aggregators.assistant().event_handler("on_assistant_turn_stopped")
        async def on_turn_stopped(_: object, message: AssistantTurnStoppedMessage) -> None:
            self._turns.put_nowait(message)

        @tts.event_handler("on_words")
        async def on_words(_: object, context_id: str, words: list[WordTimestamp]) -> None:
            # After a reconnection, words are sent again from there on; earlier ones were played.
            first = words[0].start_sample
            known = [w for w in self.words.get(context_id, []) if w.start_sample < first]
            self.words[context_id] = known + words

        @tts.event_handler("on_tts_request")
        async def on_tts_request(_: object, context_id: str, text: str) -> None:
            if context_id not in self.texts:
                self._spoke.put_nowait(context_id)
            self.texts[context_id] = self.texts.get(context_id, "") + text

    async def record(self, frame: Frame) -> None:
        """Record a frame that has left the service or the loudspeaker."""
        async with self._changed:
            if isinstance(frame, ErrorFrame):
                self.errors.append(frame)
            else:
                self.frames.append(frame)
            self._changed.notify_all()

    async def until(self, kind: type[Frame], count: int = 1) -> None:
        """Wait until `count` frames of `kind` have left the service or the loudspeaker."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: self.count(kind) >= count)

    def count(self, kind: type[Frame]) -> int:
        """Number of frames of `kind` that have left."""
        return sum(isinstance(frame, kind) for frame in [*self.frames, *self.errors])

    async def push(self, *frames: Frame) -> None:
        """Queue frames in front of the service."""
        for frame in frames:
            await self.worker.queue_frame(frame)

    async def begun(self) -> str:
        """Wait for the next TTS context that receives text; returns its id."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._spoke.get()

    async def begin(self, *pieces: str) -> str:
        """Start an LLM reply with these pieces of text; returns its TTS context."""
        await self.push(LLMFullResponseStartFrame(), *map(LLMTextFrame, pieces))
        return await self.begun()

    async def append(self, *pieces: str) -> None:
        """Send more pieces of the reply."""
        await self.push(*map(LLMTextFrame, pieces))

    async def end(self) -> None:
        """End the reply."""
        await self.push(LLMFullResponseEndFrame())

    async def reply(self, *pieces: str) -> str:
        """Send a whole reply; returns its TTS context once that has text."""
        await self.push(LLMFullResponseStartFrame(), *map(LLMTextFrame, pieces))
        await self.end()
        return await self.begun()

    async def interrupt(self) -> str:
        """Barge in once the turn has begun; returns its text in the history."""
        async with asyncio.timeout(PATIENCE_S):
            # An interruption that overtakes the turn's first frame removes it: no turn would end.
            await self._turns_begun.get()
            await self.push(InterruptionFrame())
            return (await self._turns.get()).content

    async def cut(self, context_id: str, text: str) -> tuple[str, str]:
        """Barge in; returns the turn's text in the history, and the part of `text` that was heard.

        Raises:
            MovedError: a word became audible while the interruption was on its way. Whether the
                history has it is then decided by which of both arrives first.
        """
        interrupted_at = time.monotonic()
        committed = await self.interrupt()
        near_s = _IN_FLIGHT_S + time.monotonic() - interrupted_at
        played = self.played_samples(context_id)
        for word in self.words.get(context_id, []):
            distance_s = abs(word.start_sample + HEARD_SAMPLES - played) / SAMPLE_RATE_HZ
            if distance_s < near_s:
                raise MovedError(f"{word.word.text!r} began {distance_s:.3f} s from the cut")
        return committed, self.heard(context_id, text)

    async def spoken(self) -> str:
        """Wait for the end of the turn; returns its text in the history."""
        async with asyncio.timeout(PATIENCE_S):
            await self._turns_begun.get()
            return (await self._turns.get()).content

    async def played_out(self) -> None:
        """Wait until the loudspeaker is silent."""
        await self.until(BotStoppedSpeakingFrame)

    async def play(self, context_id: str, seconds: float) -> None:
        """Wait until `seconds` of the turn were played."""
        await self.transport.wait_until_played(context_id, round(seconds * SAMPLE_RATE_HZ))

    def played_samples(self, context_id: str) -> int:
        """Played audio of a context."""
        played = [u for u in self.transport.utterances if u.context_id == context_id]
        return sum(utterance.played_samples for utterance in played)

    def heard(self, context_id: str, text: str) -> str:
        """The part of the context's `text` that was heard."""
        played = self.played_samples(context_id)
        ends = [
            timestamp.word.char_end
            for timestamp in self.words.get(context_id, [])
            if timestamp.start_sample + HEARD_SAMPLES <= played
        ]
        return text[: max(ends, default=0)]

    @property
    def committed(self) -> Sequence[str]:
        """Assistant messages in the history."""
        messages = cast("list[dict[str, str]]", self.context.get_messages())
        return [each["content"] for each in messages if each["role"] == "assistant"]


@contextlib.asynccontextmanager
async def talking(tts: TTSService, **options: Any) -> AsyncIterator[Conversation]:
    """Run a conversation; ends its pipeline afterwards. `options` are those of its worker."""
    conversation = Conversation(tts, **options)
    async with running_in_time(conversation.worker):
        yield conversation


@contextlib.asynccontextmanager
async def running_in_time(worker: PipelineWorker) -> AsyncIterator[None]:
    """Run a pipeline within the block, which begins when all of it has started.

    Its end is bounded: a failed test must end even if Pipecat waits for a frame that does not come,
    or swallows a cancellation.
    """
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def on_started(*_: object) -> None:
        started.set()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            await started.wait()
        yield
    finally:
        async with asyncio.timeout(PATIENCE_S):
            await worker.cancel()
        await asyncio.wait({running}, timeout=PATIENCE_S)
        assert running.done(), "the pipeline does not end"
        running.result()


def service(server: RunningServer | ServerProcess, **options: Any) -> VoiceAgentTTSService:
    """Return a service for `server`, in English by default."""
    return VoiceAgentTTSService(
        url=server.websocket_url, **{"settings": ENGLISH, "response_timeout_s": 5.0} | options
    )


def counter_of(tts: TTSService, event: str) -> Callable[[], int]:
    """Count the calls of an event handler."""
    calls: list[None] = []

    @tts.event_handler(event)
    async def on_event(*_: object) -> None:
        calls.append(None)

    return lambda: len(calls)


async def speaks(conversation: Conversation, text: str = "Yes, I can.") -> None:
    """Check that a turn is spoken and committed whole."""
    await conversation.reply(text)
    assert await conversation.spoken() == text


class _Watcher(BaseObserver):
    def __init__(self, conversation: Conversation) -> None:
        super().__init__()
        self._conversation = conversation

    async def on_push_frame(self, data: FramePushed) -> None:
        kinds = (TTSAudioRawFrame, TTSStoppedFrame, ErrorFrame, MetricsFrame)
        is_of_service = data.source is self._conversation.tts and isinstance(data.frame, kinds)
        is_of_output = isinstance(data.frame, BotStoppedSpeakingFrame)
        if is_of_service or (is_of_output and data.direction is FrameDirection.DOWNSTREAM):
            await self._conversation.record(data.frame)
