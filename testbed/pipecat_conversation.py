"""A Pipecat pipeline around a service, in real time, or with a scripted server and clock.

Uses these private names of Pipecat's output transport: `_media_senders` and their `_audio_queue`.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast
from unittest import mock

from pipecat.clocks.base_clock import BaseClock
from pipecat.frames.frames import (
    BotStoppedSpeakingFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    OutputAudioRawFrame,
    OutputTransportMessageFrame,
    OutputTransportMessageUrgentFrame,
    StartFrame,
    TTSStartedFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.service_switcher import ServiceSwitcher, ServiceSwitcherStrategyFailover
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    AssistantTurnStoppedMessage,
    LLMContextAggregatorPair,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams

from testbed.proxy import Router, routing
from testbed.scripted_server import Script, ScriptedServer
from testbed.scripted_time import ScriptedLoop, run_scripted
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.plugins.demo.pipeline import running

_COMMITTED_AFTER_S = 0.5
"""Longest time from an interruption until the history has what was heard."""


class LoopClock(BaseClock):
    """Pipecat's clock, on the time of the event loop."""

    def get_time(self) -> int:
        """Nanoseconds."""
        return round(asyncio.get_running_loop().time() * 1e9)

    def start(self) -> None:
        """Do nothing: the loop's time runs already."""


@dataclass(frozen=True, slots=True)
class HoldUp:
    """A time in which other programs have the processor, and nothing of the pipeline runs.

    Args:
        at_s: seconds from the first chunk that plays.
        for_s: its length.
    """

    at_s: float
    for_s: float

    async def happen(self, _: "Conversation") -> None:
        cast("ScriptedLoop", asyncio.get_running_loop()).hold_up(self.for_s)


class Loudspeaker(BaseOutputTransport):
    """Plays whole chunks without a gap where it has them.

    Args:
        chunk_ms: length of a chunk.
        deaf: when writing to it fails, after its first chunk; None for never.
        catches_up: whether chunks whose time has passed in a hold-up are played at once, as by a
            sound card with a buffer; otherwise each chunk takes its time, as on a telephone line.

    Attributes:
        played_samples: audio of each utterance whose chunks have begun, in order.
        pcm: all of their audio.
        told: messages for a page, in order, each with the samples of its utterance played by then.
        is_silent: whether what was said has been played.
    """

    def __init__(
        self, chunk_ms: int = 40, *, deaf: HoldUp | None = None, catches_up: bool = False
    ) -> None:
        super().__init__(
            TransportParams(
                audio_out_enabled=True,
                audio_out_sample_rate=SAMPLE_RATE_HZ,
                audio_out_10ms_chunks=chunk_ms // 10,
                audio_out_end_silence_secs=0,
            )
        )
        self.played_samples: list[int] = []
        self.pcm = bytearray()
        self.told: list[tuple[int, dict[str, Any]]] = []
        self.is_silent = asyncio.Event()
        self._deaf = deaf
        self._catches_up = catches_up
        self._began_at_s = math.inf
        self._free_at_s = 0.0
        self._has_waited = False  # whether the next chunk was there when the last one ended
        self._has_begun = asyncio.Event()

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def push_frame(
        self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM
    ) -> None:
        await super().push_frame(frame, direction)
        if isinstance(frame, BotStoppedSpeakingFrame):
            self.is_silent.set()

    async def write_transport_frame(self, frame: Frame) -> None:
        if isinstance(frame, TTSStartedFrame):
            self.is_silent.clear()
            self.played_samples.append(0)

    async def send_message(
        self, frame: OutputTransportMessageFrame | OutputTransportMessageUrgentFrame
    ) -> None:
        self.told.append((self.played_samples[-1] if self.played_samples else 0, frame.message))

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        """Play a chunk to its end; returns whether it could."""
        now_s = asyncio.get_running_loop().time()
        self._began_at_s = min(self._began_at_s, now_s)
        if self._deaf and 0 <= now_s - self._began_at_s - self._deaf.at_s < self._deaf.for_s:
            return False
        samples = len(frame.audio) // BYTES_PER_SAMPLE
        self.played_samples[-1] += samples
        self.pcm += frame.audio
        is_late = self._catches_up and self._has_waited
        self._free_at_s = self._free_at_s if is_late else max(now_s, self._free_at_s)
        self._free_at_s += samples / SAMPLE_RATE_HZ
        self._has_begun.set()
        await asyncio.sleep(max(0.0, self._free_at_s - now_s))
        self._has_waited = self._media_senders[None]._audio_queue.has_frame(OutputAudioRawFrame)
        return True

    async def begun(self) -> None:
        await self._has_begun.wait()


class Passing(FrameProcessor):
    """Passes all frames on, and notes them."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Frame] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self.frames.append(frame)
        await self.push_frame(frame, direction)


class Understudy(TTSService):
    """A service that may take over from another one, and notes what it is asked to say."""

    def __init__(self) -> None:
        super().__init__(
            settings=TTSSettings(model=None, voice=None, language=None), push_start_frame=True
        )
        self.said: list[str] = []

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        self.said.append(text)
        yield None


def reply(*tokens: str) -> list[Frame]:
    return [LLMFullResponseStartFrame(), *map(LLMTextFrame, tokens), LLMFullResponseEndFrame()]


@dataclass(slots=True)
class Conversation:
    """A pipeline that runs, with its ends.

    Attributes:
        ended: done when the pipeline has ended.
        turns: the turns that have ended, and not been waited for.
        begun: one item for each turn that has begun, and not been waited for.
        errors: of the service.
        server: speaks its text, if that is scripted.
        line: leads there.
    """

    worker: PipelineWorker
    service: TTSService
    loudspeaker: Loudspeaker
    ended: "asyncio.Task[None]"
    context: LLMContext
    turns: "asyncio.Queue[AssistantTurnStoppedMessage]"
    begun: "asyncio.Queue[None]"
    errors: list[ErrorFrame]
    server: ScriptedServer = None  # type: ignore[assignment]
    line: Router = None  # type: ignore[assignment]

    @property
    def messages(self) -> list[str]:
        return [each["content"] for each in cast("list[dict[str, str]]", self.context.messages)]

    async def push(self, *frames: Frame) -> None:
        for frame in frames:
            await self.worker.queue_frame(frame)

    async def say(self, frames: Sequence[Frame]) -> None:
        """Let `frames` enter the service, and wait until the first chunk of all begins."""
        await self.push(*frames)
        await self.loudspeaker.begun()

    async def spoken(self, *tokens: str) -> str:
        """Let a reply be spoken if one is given; return the text of the next turn that ends."""
        if tokens:
            await self.push(*reply(*tokens))
        async with asyncio.timeout(PATIENCE_S):
            await self.begun.get()
            return (await self.turns.get()).content

    async def interrupt(self) -> str:
        """Barge in once the turn has begun; returns its text in the history."""
        async with asyncio.timeout(PATIENCE_S):
            # An interruption that overtakes the turn's first frame removes it: no turn would end.
            await self.begun.get()
            await self.push(InterruptionFrame())
            return (await self.turns.get()).content

    async def played(self, seconds: float) -> None:
        """Wait until the last utterance, or the next one, has played for so long."""
        played = self.loudspeaker.played_samples
        await until(lambda: bool(played) and played[-1] >= seconds * SAMPLE_RATE_HZ, "it is played")


@contextlib.asynccontextmanager
async def talking(
    service: TTSService,
    loudspeaker: Loudspeaker | None = None,
    *,
    stage: FrameProcessor | None = None,
    between: Sequence[FrameProcessor] = (),
    has_page: bool = False,
    **options: Any,
) -> AsyncIterator[Conversation]:
    """Run a pipeline within the block.

    Args:
        service: speaks.
        loudspeaker: its output; by default it plays chunks of 40 ms.
        stage: what stands in the pipeline in place of `service`, around it.
        between: processors between the service and `loudspeaker`.
        has_page: whether a page follows it, by RTVI.
        **options: of its worker.
    """
    speaker, context = loudspeaker or Loudspeaker(), LLMContext()
    history = LLMContextAggregatorPair(context).assistant()
    turns, begun = asyncio.Queue[AssistantTurnStoppedMessage](), asyncio.Queue[None]()
    errors: list[ErrorFrame] = []

    @history.event_handler("on_assistant_turn_started")
    async def on_turn_started(_: object) -> None:
        begun.put_nowait(None)

    @history.event_handler("on_assistant_turn_stopped")
    async def on_turn_stopped(_: object, message: AssistantTurnStoppedMessage) -> None:
        turns.put_nowait(message)

    @service.event_handler("on_error")
    async def on_error(_: object, error: ErrorFrame) -> None:
        errors.append(error)

    worker = PipelineWorker(
        Pipeline([stage or service, *between, speaker, history]),
        params=PipelineParams(enable_metrics=True, enable_usage_metrics=True),
        clock=LoopClock(),
        cancel_on_idle_timeout=False,
        enable_rtvi=has_page,
        **options,
    )
    async with running(worker) as ended:
        yield Conversation(worker, service, speaker, ended, context, turns, begun, errors)


@contextlib.asynccontextmanager
async def scripted(
    script: Script,
    loudspeaker: Loudspeaker | None = None,
    *,
    first: Iterable[Script] = (),
    around: Callable[[VoiceAgentTTSService], FrameProcessor] | None = None,
    between: Sequence[FrameProcessor] = (),
    has_page: bool = False,
    is_down: bool = False,
    **options: Any,
) -> AsyncIterator[Conversation]:
    """Run a pipeline within the block, on a scripted clock.

    Args:
        script: what the server sends for each context.
        loudspeaker: as for `talking`.
        first: what the server sends for the first contexts.
        around: makes what stands in the pipeline in place of the service.
        between: as for `talking`.
        has_page: as for `talking`.
        is_down: whether the server cannot be reached at the start.
        **options: arguments of the service.
    """
    loop = asyncio.get_running_loop()
    async with (
        ScriptedServer(script, first).running() as server,
        routing(server.addresses["ws"]) as (line, url),
    ):
        if is_down:
            line.go_down()
        service = VoiceAgentTTSService(url=url, **options)
        stage = around and around(service)
        with mock.patch.object(time, "monotonic", loop.time):
            async with talking(
                service, loudspeaker, stage=stage, between=between, has_page=has_page
            ) as talk:
                talk.server, talk.line = server, line
                yield talk


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a conversation.

    Attributes:
        messages: those in the history.
        played_samples: the played audio of each utterance.
        errors: of the service, in words.
        server: has spoken.
        sockets: how many the service has opened.
    """

    messages: list[str]
    played_samples: list[int]
    errors: list[str]
    server: ScriptedServer
    sockets: int


Act = Sequence[Frame] | Callable[[Conversation], Awaitable[None]]
"""Frames that enter the service, or what else is done with a pipeline."""


def history(script: Script, *acts: tuple[float, Act], **options: Any) -> Outcome:
    """Hold a conversation on a scripted clock.

    Args:
        script: what the server sends for each context.
        *acts: each with its seconds after the act before; the second one waits until the first
            chunk plays.
        **options: of `scripted`, among them arguments of the service.
    """

    async def run() -> Outcome:
        async with scripted(script, **options) as talk:
            for wait_s, act in acts:
                await asyncio.sleep(wait_s)
                await (act(talk) if callable(act) else talk.say(act))
            await asyncio.sleep(_COMMITTED_AFTER_S)
            played, errors = talk.loudspeaker.played_samples, [each.error for each in talk.errors]
            return Outcome(talk.messages, played, errors, talk.server, talk.line.accepted)

    return run_scripted(run())


def cut(
    frames: Sequence[Frame],
    script: Script,
    after_s: float,
    *,
    hold_up: HoldUp | None = None,
    **options: Any,
) -> Outcome:
    """Speak, and interrupt.

    Args:
        frames: what enters the service; the scripted server's words are single letters.
        script: what the server sends for each context.
        after_s: seconds from the first chunk that plays to the interruption.
        hold_up: when nothing runs; None for never.
        **options: of `history`.
    """
    acts: list[tuple[float, Act]] = [(0.0, frames)]
    if hold_up is not None:
        acts.append((hold_up.at_s, hold_up.happen))
        after_s -= hold_up.at_s + hold_up.for_s
    return history(script, *acts, (after_s, [InterruptionFrame()]), **options)


def failing_over(second: TTSService) -> Callable[[VoiceAgentTTSService], ServiceSwitcher]:
    """Makes a stage in which `second` takes over from the service when that has failed."""
    return lambda first: ServiceSwitcher([first, second], ServiceSwitcherStrategyFailover)


async def lose_connection(talk: Conversation) -> None:
    await talk.server.drop_connections()
