"""A Pipecat pipeline, its loudspeaker and a server on one scripted clock.

Uses these private names of Pipecat's output transport: `_media_senders` and their `_audio_queue`.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pipecat.clocks.base_clock import BaseClock
from pipecat.frames.frames import (
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
from pipecat.pipeline.service_switcher import ServiceSwitcher
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams

from testbed.scripted_server import Script, ScriptedServer
from testbed.scripted_time import ScriptedLoop, run_scripted
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

    async def happen(self, _: "Agent") -> None:
        """Let the time pass."""
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
        told: messages for a page, in order, each with the samples of its utterance played by then.
    """

    def __init__(
        self, chunk_ms: int, *, deaf: HoldUp | None = None, catches_up: bool = False
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
        self.told: list[tuple[int, dict[str, Any]]] = []
        self._deaf = deaf
        self._catches_up = catches_up
        self._began_at_s = math.inf
        self._free_at_s = 0.0
        self._has_waited = False  # whether the next chunk was there when the last one ended
        self._has_begun = asyncio.Event()

    async def start(self, frame: StartFrame) -> None:
        """Play from now on."""
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_transport_frame(self, frame: Frame) -> None:
        """Note the start of an utterance."""
        if isinstance(frame, TTSStartedFrame):
            self.played_samples.append(0)

    async def send_message(
        self, frame: OutputTransportMessageFrame | OutputTransportMessageUrgentFrame
    ) -> None:
        """Note a message for a page."""
        self.told.append((self.played_samples[-1] if self.played_samples else 0, frame.message))

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        """Play a chunk to its end; returns whether it could."""
        now_s = asyncio.get_running_loop().time()
        self._began_at_s = min(self._began_at_s, now_s)
        if self._deaf and 0 <= now_s - self._began_at_s - self._deaf.at_s < self._deaf.for_s:
            return False
        samples = len(frame.audio) // BYTES_PER_SAMPLE
        self.played_samples[-1] += samples
        is_late = self._catches_up and self._has_waited
        self._free_at_s = self._free_at_s if is_late else max(now_s, self._free_at_s)
        self._free_at_s += samples / SAMPLE_RATE_HZ
        self._has_begun.set()
        await asyncio.sleep(max(0.0, self._free_at_s - now_s))
        self._has_waited = self._media_senders[None]._audio_queue.has_frame(OutputAudioRawFrame)
        return True

    async def begun(self) -> None:
        """Wait until the first chunk begins."""
        await self._has_begun.wait()


def reply(text: str) -> list[Frame]:
    """The frames of an LLM's reply."""
    return [LLMFullResponseStartFrame(), LLMTextFrame(text), LLMFullResponseEndFrame()]


@dataclass(frozen=True, slots=True)
class Agent:
    """A pipeline that runs, with its ends.

    Attributes:
        worker: runs it.
        service: speaks.
        loudspeaker: its output.
        server: speaks its text.
        ended: done when the pipeline has ended.
        context: its history.
    """

    worker: PipelineWorker
    service: VoiceAgentTTSService
    loudspeaker: Loudspeaker
    server: ScriptedServer
    ended: "asyncio.Task[None]"
    context: LLMContext

    @property
    def messages(self) -> list[str]:
        """The history's messages."""
        return [each["content"] for each in cast("list[dict[str, str]]", self.context.messages)]

    async def say(self, frames: Sequence[Frame]) -> None:
        """Let `frames` enter the service, and wait until the first chunk begins."""
        for frame in frames:
            await self.worker.queue_frame(frame)
        await self.loudspeaker.begun()


@contextlib.asynccontextmanager
async def agent(
    script: Script,
    loudspeaker: Loudspeaker,
    *,
    first: Iterable[Script] = (),
    is_switched: bool = False,
    between: Sequence[FrameProcessor] = (),
    has_page: bool = False,
    **options: Any,
) -> AsyncIterator[Agent]:
    """Run a pipeline within the block.

    Args:
        script: what the server sends for each context.
        loudspeaker: the pipeline's output.
        first: what it sends for the first contexts.
        is_switched: whether the service is one of several between which one can switch.
        between: processors between the service and `loudspeaker`.
        has_page: whether a page follows it, by RTVI.
        **options: arguments of the service.
    """
    context = LLMContext()
    history = LLMContextAggregatorPair(context).assistant()
    async with ScriptedServer(script, first).running() as server:
        service = VoiceAgentTTSService(url=server.addresses["ws"], **options)
        speaker = ServiceSwitcher([service]) if is_switched else service
        worker = PipelineWorker(
            Pipeline([speaker, *between, loudspeaker, history]),
            clock=LoopClock(),
            cancel_on_idle_timeout=False,
            enable_rtvi=has_page,
        )
        async with running(worker) as ended:
            yield Agent(worker, service, loudspeaker, server, ended, context)


Act = Sequence[Frame] | Callable[[Agent], Awaitable[None]]
"""Frames that enter the service, or what else is done with a pipeline."""


def history(
    script: Script,
    *acts: tuple[float, Act],
    loudspeaker: Loudspeaker | None = None,
    **options: Any,
) -> tuple[list[str], list[int]]:
    """Hold a conversation, and return what came of it.

    Args:
        script: what the server sends for each context.
        *acts: each with its seconds after the act before; the second one waits until the first
            chunk plays.
        loudspeaker: the pipeline's output; by default it plays chunks of 40 ms.
        **options: of `agent`, among them arguments of the service.

    Returns:
        The messages in the history, and the played audio of each utterance, in samples.
    """

    async def run() -> tuple[list[str], list[int]]:
        async with agent(script, loudspeaker or Loudspeaker(40), **options) as talk:
            for wait_s, act in acts:
                await asyncio.sleep(wait_s)
                await (act(talk) if callable(act) else talk.say(act))
            await asyncio.sleep(_COMMITTED_AFTER_S)
            return talk.messages, talk.loudspeaker.played_samples

    return run_scripted(run())


def cut(
    frames: Sequence[Frame],
    script: Script,
    after_s: float,
    *,
    hold_up: HoldUp | None = None,
    **options: Any,
) -> tuple[list[str], list[int]]:
    """Speak, and interrupt.

    Args:
        frames: what enters the service; the scripted server's words are single letters.
        script: what the server sends for each context.
        after_s: seconds from the first chunk that plays to the interruption.
        hold_up: when nothing runs; None for never.
        **options: of `history`.

    Returns:
        The messages in the history, and the played audio of each utterance, in samples.
    """
    acts: list[tuple[float, Act]] = [(0.0, frames)]
    if hold_up is not None:
        acts.append((hold_up.at_s, hold_up.happen))
        after_s -= hold_up.at_s + hold_up.for_s
    return history(script, *acts, (after_s, [InterruptionFrame()]), **options)
