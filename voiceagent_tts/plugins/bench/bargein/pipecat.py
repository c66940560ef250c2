"""Barge-ins in a Pipecat pipeline: its aggregators and voice activity detection, real time.

A user speaks, the agent replies, the user interrupts by speaking again, and so on. Transcription
and LLM are scripted: the transcription always returns one text, and the LLM writes its next reply.
Everything between is Pipecat's and the text-to-speech service's.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import cast

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.frames.frames import (
    Frame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
)
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    AssistantTurnStoppedMessage,
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.tts_service import TTSService
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.plugins.bench.bargein.replies import USER_TEXT, Cut
from voiceagent_tts.plugins.bench.bargein.session import (
    ANSWER_PATIENCE_S,
    LONGEST_WAIT_S,
    TRIES,
    Call,
    Reply,
)
from voiceagent_tts.plugins.demo.pipeline import running
from voiceagent_tts.plugins.demo.realtime_file_transport import (
    SPEAKER_RATE_HZ,
    RealtimeFileTransport,
    Utterance,
)
from voiceagent_tts.plugins.demo.scripted import ScriptedSTT

_REACTION_S = 0.2
"""Approximate time from the user's first sound to the agent's silence."""
_POLL_S = 0.01
_SILENT_S = 0.3
_CORRECTION_S = 0.1
"""Wait for a service that corrects the history when it knows more about the interruption."""
_COMMIT_PATIENCE_S = 2.0
"""Wait for the end of a turn after an interruption; a turn without one committed nothing."""


async def talk(
    call: Call,
    cuts: Sequence[Cut],
    inject_fault: Callable[[], object],
    on_reply: Callable[[Reply], None],
) -> None:
    """Play `cuts` in a session of their own."""
    agent = _Agent(call, cuts, inject_fault)
    async with running(agent.worker):
        agent.say()
        for _ in cuts:
            on_reply(await agent.reply())


class _Agent:
    """A pipeline, its transport, and a simulated user."""

    def __init__(self, call: Call, cuts: Sequence[Cut], inject_fault: Callable[[], object]) -> None:
        self.transport = RealtimeFileTransport()
        self._call = call
        self._inject_fault = inject_fault
        self._stt = ScriptedSTT()
        self._llm = _Writer(cuts)
        self._tts: TTSService = call.make_service(cuts[0].language)
        self._turns: asyncio.Queue[AssistantTurnStoppedMessage] = asyncio.Queue()
        self._watcher = _Watcher(self._tts, self.transport)
        self._context = LLMContext()
        aggregators = LLMContextAggregatorPair(
            self._context,
            user_params=LLMUserAggregatorParams(
                vad_analyzer=SileroVADAnalyzer(params=VADParams(start_secs=0.06)),
                user_turn_strategies=UserTurnStrategies(
                    stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.1)]
                ),
            ),
        )
        parts: list[FrameProcessor] = [
            self.transport.input(),
            self._stt,
            aggregators.user(),
            self._llm,
            self._tts,
            self.transport.output(),
            aggregators.assistant(),
        ]
        self.worker = PipelineWorker(
            Pipeline(parts),
            observers=[self._watcher],
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )
        self._listen_to(aggregators)

    def _listen_to(self, aggregators: LLMContextAggregatorPair) -> None:
        @aggregators.assistant().event_handler("on_assistant_turn_stopped")
        async def on_turn_stopped(_: object, message: AssistantTurnStoppedMessage) -> None:
            self._turns.put_nowait(message)

    @property
    def _messages(self) -> list[str]:
        messages = cast("list[dict[str, str]]", self._context.get_messages())
        return [each["content"] for each in messages if each["role"] == "assistant"]

    def say(self) -> None:
        self._stt.expect(USER_TEXT)
        self.transport.say(self._call.user_pcm)

    async def reply(self) -> Reply:
        """Play the agent's next reply until the user has interrupted it."""
        first = len(self.transport.utterances)
        cut = await self._begun()
        self._turns = asyncio.Queue()
        known = len(self._messages)
        self._watcher.received_samples = 0
        if cut.fault_at_s is not None:
            await self._listen(first, cut.fault_at_s, LONGEST_WAIT_S)
            self._inject_fault()
        await self._listen(first, cut.at_s - _REACTION_S, cut.patience_s)
        said_at, message = await self._cut_in()
        was_interrupted = message is None or message.interrupted
        if not was_interrupted:
            await self._played_out(first)
        await asyncio.sleep(_CORRECTION_S)
        committed = " ".join(self._messages[known:])
        return self._result(
            cut, was_interrupted, committed, self.transport.utterances[first:], said_at
        )

    async def _begun(self) -> Cut:
        """Wait for the agent's next reply; the user asks again if none starts."""
        for _ in range(TRIES):
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(self._llm.begun.get(), ANSWER_PATIENCE_S)
            self.say()
        raise TimeoutError("the agent does not answer")

    async def _cut_in(self) -> tuple[float, AssistantTurnStoppedMessage | None]:
        """Interrupt, again if it was not noticed; returns the time and the turn's end."""
        for _ in range(TRIES):
            said_at = self.transport.now_s
            self.say()
            with contextlib.suppress(TimeoutError):
                return said_at, await asyncio.wait_for(self._turns.get(), _COMMIT_PATIENCE_S)
            if self._watcher.halted_at >= said_at:
                return said_at, await self._late_message()
        raise TimeoutError("the agent did not notice the user")

    async def _late_message(self) -> AssistantTurnStoppedMessage | None:
        """The end of a turn that was halted just before the wait for it ended, if any."""
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._turns.get(), _COMMIT_PATIENCE_S)
        return None

    async def _listen(self, first: int, until_s: float, patience_s: float) -> None:
        """Wait until `until_s` were played, or the reply was silent for over `patience_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT_S):
                while self._turns.empty():
                    chunks = _chunks(self.transport.utterances[first:])
                    played_s = sum(samples for _, samples in chunks) / SPEAKER_RATE_HZ
                    dry_s = self.transport.now_s - _end_s(chunks) if chunks else 0.0
                    if (chunks and played_s >= until_s) or dry_s > patience_s:
                        return
                    await asyncio.sleep(_POLL_S)

    async def _played_out(self, first: int) -> None:
        """Wait until a reply that was not interrupted has been played."""
        while chunks := _chunks(self.transport.utterances[first:]):
            if self.transport.now_s - _end_s(chunks) > _SILENT_S:
                return
            await asyncio.sleep(_POLL_S)

    def _result(
        self,
        cut: Cut,
        was_interrupted: bool,
        committed: str,
        utterances: Sequence[Utterance],
        said_at: float,
    ) -> Reply:
        chunks = _chunks(utterances)
        ended_at = _end_s(chunks) if chunks else said_at
        halted_at = self._watcher.halted_at if was_interrupted else ended_at
        gaps = (after[0] - sum(before) for before, after in pairwise(chunks))
        return Reply(
            cut=cut,
            was_interrupted=was_interrupted,
            played=b"".join(bytes(utterance.pcm) for utterance in utterances),
            committed=committed,
            received_s=self._watcher.received_samples / SAMPLE_RATE_HZ,
            dry_s=sum(max(0, gap) for gap in gaps) / SPEAKER_RATE_HZ,
            cancel_ms=1000 * max(0.0, ended_at - halted_at),
            barge_in_ms=1000 * (ended_at - said_at),
        )


def _chunks(utterances: Sequence[Utterance]) -> list[tuple[int, int]]:
    return [chunk for utterance in utterances for chunk in utterance.chunks]


def _end_s(chunks: Sequence[tuple[int, int]]) -> float:
    return sum(chunks[-1]) / SPEAKER_RATE_HZ


class _Watcher(BaseObserver):
    """Records the last interruption of the pipeline and the audio of its service.

    Attributes:
        halted_at: time of the last interruption, on the transport's clock.
        received_samples: audio of this reply that has left the service.
    """

    def __init__(self, tts: TTSService, transport: RealtimeFileTransport) -> None:
        super().__init__()
        self._tts = tts
        self._transport = transport
        self._interruption: int | None = None
        self.halted_at = 0.0
        self.received_samples = 0

    async def on_push_frame(self, data: FramePushed) -> None:
        frame = data.frame
        if isinstance(frame, InterruptionFrame) and frame.id != self._interruption:
            self._interruption, self.halted_at = frame.id, self._transport.now_s
        elif isinstance(frame, TTSAudioRawFrame) and data.source is self._tts:
            self.received_samples += len(frame.audio) // BYTES_PER_SAMPLE


class _Writer(FrameProcessor):
    """Writes one reply after another at the pace of a language model.

    Attributes:
        begun: replies whose writing has started.
    """

    def __init__(self, cuts: Sequence[Cut]) -> None:
        super().__init__()
        self._cuts = deque(cuts)
        self.begun: asyncio.Queue[Cut] = asyncio.Queue()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        # An interruption cancels this task while it writes.
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame):
            if self._cuts:
                await self._write(self._cuts.popleft())
        else:
            await self.push_frame(frame, direction)

    async def _write(self, cut: Cut) -> None:
        self.begun.put_nowait(cut)
        await self.push_frame(LLMFullResponseStartFrame())
        async for token in cut.written():
            await self.push_frame(LLMTextFrame(token))
        await self.push_frame(LLMFullResponseEndFrame())
