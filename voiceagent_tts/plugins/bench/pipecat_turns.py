"""Whole turns in a Pipecat pipeline, by stage: from the user's last sound to the agent's first.

Voice activity detection hears real audio in real time. Transcription and language model are the
services that are given, or stand-ins which answer as soon as they can. The transport's clock says
when sound was heard and played.
"""

import asyncio
from collections.abc import Sequence

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import (
    InterruptionFrame,
    LLMTextFrame,
    TranscriptionFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.processors.frame_processor import FrameProcessor

from voiceagent_tts.audio.levels import leading_silence_samples
from voiceagent_tts.demo.pipeline import running
from voiceagent_tts.demo.realtime_file_transport import SPEAKER_RATE_HZ, RealtimeFileTransport
from voiceagent_tts.demo.scripted import ScriptedLLM, ScriptedSTT
from voiceagent_tts.errors import EngineError
from voiceagent_tts.plugins.bench.stage_clock import StageClock
from voiceagent_tts.plugins.bench.targets.classes import ServiceClass
from voiceagent_tts.plugins.bench.turn_script import PAUSE_S, Question, Services, TurnEvents

_POLL_S = 0.005


async def measure_turns(services: Services, questions: Sequence[Question]) -> StageClock:
    """Ask one question after the other; each answer is cut off after its first sound.

    Raises:
        InvalidRequestError: a service cannot be constructed.
        EngineError: the agent does not answer.
    """
    agent = _Agent(services, questions)
    async with running(agent.worker):
        for question in questions:
            await agent.turn(question)
    return agent.clock


class _Agent:
    """A pipeline with a simulated user."""

    def __init__(self, services: Services, questions: Sequence[Question]) -> None:
        self.clock = StageClock()
        self._events = TurnEvents(self.clock)
        self._transport = RealtimeFileTransport()
        self._scripted_stt = ScriptedSTT() if services.stt is None else None
        replies = {question.text: ("en", question.answer) for question in questions}
        stand_in = ScriptedLLM(replies, first_token_s=0.0)
        aggregators = LLMContextAggregatorPair(
            LLMContext(), user_params=LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer())
        )
        parts: list[FrameProcessor] = [
            self._transport.input(),
            self._scripted_stt or _made(services.stt),
            aggregators.user(),
            stand_in if services.llm is None else services.llm.make(),
            services.tts.make(),
            self._transport.output(),
            aggregators.assistant(),
        ]
        self.worker = PipelineWorker(
            Pipeline(parts),
            observers=[_Watcher(self._events, self._transport)],
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )

    async def turn(self, question: Question) -> None:
        """Ask, wait for the first sound of the answer, and cut it off.

        Raises:
            EngineError: there is none.
        """
        first_said, first_played = len(self._transport.said), len(self._transport.utterances)
        if self._scripted_stt is not None:
            self._scripted_stt.expect(question.text)
        self._transport.say(question.pcm)
        try:
            async with asyncio.timeout(question.patience_s):
                while len(self._transport.said) <= first_said:
                    await asyncio.sleep(_POLL_S)
                began_s = self._transport.said[first_said][0] / SPEAKER_RATE_HZ
                self._events.start_turn(began_s + question.sound_s)
                while (audible_s := self._audible_s(first_played)) is None:
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise EngineError("expected an answer of the agent; got no sound in time") from None
        self._events.heard(audible_s)
        await self.worker.queue_frame(InterruptionFrame())
        await asyncio.sleep(PAUSE_S)

    def _audible_s(self, first: int) -> float | None:
        """When the first audible sample since the utterance `first` was played."""
        for utterance in self._transport.utterances[first:]:
            position = utterance.position_of(leading_silence_samples(bytes(utterance.pcm)))
            if position is not None:
                return position / SPEAKER_RATE_HZ
        return None


def _made(service: ServiceClass | None) -> FrameProcessor:
    assert service is not None
    return service.make()


class _Watcher(BaseObserver):
    """Reports the frames that end a stage."""

    def __init__(self, events: TurnEvents, transport: RealtimeFileTransport) -> None:
        super().__init__()
        self._transport = transport
        self._reports = {
            VADUserStoppedSpeakingFrame: events.speech_ended,
            TranscriptionFrame: events.transcribed,
            LLMTextFrame: events.token_written,
        }

    async def on_push_frame(self, data: FramePushed) -> None:
        """Record the time of a frame."""
        report = self._reports.get(type(data.frame))
        if report is not None:
            report(self._transport.now_s)
