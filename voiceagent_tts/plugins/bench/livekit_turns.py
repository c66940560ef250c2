"""Whole turns in a LiveKit `AgentSession`, by stage: from the user's last sound to the agent.

The session runs without a room, on simulated devices in real time, with LiveKit's own voice
activity detection on real audio. Transcription and language model are the plugins that are given,
or stand-ins which answer as soon as they can.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from typing import Any

import aiohttp
from livekit.agents import Agent, AgentSession, LanguageCode, inference, stt
from livekit.agents.voice import ModelSettings
from livekit.agents.voice.events import UserInputTranscribedEvent, UserStateChangedEvent

from livekit import rtc
from voiceagent_tts.errors import EngineError
from voiceagent_tts.plugins.bench.livekit_devices import Loudspeaker, Microphone, Screen, on_devices
from voiceagent_tts.plugins.bench.livekit_stand_ins import Script, ScriptedLLM
from voiceagent_tts.plugins.bench.loads import tokens_of
from voiceagent_tts.plugins.bench.stage_clock import StageClock
from voiceagent_tts.plugins.bench.turn_script import PAUSE_S, Question, Services, TurnEvents

_TOKENS_PER_S = 50.0
"""Pace of the stand-in for a language model, as the one in Pipecat has it."""
_POLL_S = 0.005


async def measure_turns(services: Services, questions: Sequence[Question]) -> StageClock:
    """Ask one question after the other; each answer is cut off after its first sound.

    Raises:
        InvalidRequestError: a plugin cannot be constructed.
        EngineError: the agent does not answer.
    """
    async with aiohttp.ClientSession() as http:
        user = _User(services, http)
        async with user.talking():
            for question in questions:
                await user.turn(question)
        return user.clock


class _User:
    """A simulated user of a session without a room."""

    def __init__(self, services: Services, http: aiohttp.ClientSession) -> None:
        self.clock = StageClock()
        self._events = TurnEvents(self.clock)
        self._loudspeaker, self._microphone = Loudspeaker(), Microphone()
        self._scripted_stt = _ScriptedSTT()
        self._answer = ""
        self._voice = services.tts.make(http_session=http)
        self._session: AgentSession[None] = AgentSession(
            vad=inference.VAD(model="silero"),
            stt=services.stt.make(http_session=http) if services.stt else self._scripted_stt,
            llm=services.llm.make(http_session=http) if services.llm else ScriptedLLM(self._script),
            tts=self._voice,
            # LiveKit's turn detector would wait for most questions to go on: it was trained on
            # people, and here a synthetic voice asks.
            turn_handling={"turn_detection": "vad"},
            aec_warmup_duration=None,
            use_tts_aligned_transcript=True,
        )
        self._session.on("user_state_changed", self._on_user_state)
        self._session.on("user_input_transcribed", self._on_transcript)

    def _script(self) -> Script:
        waits_s = itertools.chain((0.0,), itertools.repeat(1 / _TOKENS_PER_S))
        return zip(waits_s, tokens_of(self._answer), strict=False)

    def _on_user_state(self, event: UserStateChangedEvent) -> None:
        if event.old_state == "speaking":
            self._events.speech_ended(time.monotonic())

    def _on_transcript(self, event: UserInputTranscribedEvent) -> None:
        if event.is_final:
            self._events.transcribed(time.monotonic())

    @contextlib.asynccontextmanager
    async def talking(self) -> AsyncIterator[None]:
        """Run the session within the block."""
        devices = self._loudspeaker, self._microphone, Screen()
        try:
            async with on_devices(self._session, _Agent(self._events), *devices):
                yield
        finally:
            await self._voice.aclose()

    async def turn(self, question: Question) -> None:
        """Ask, wait for the first sound of the answer, and cut it off.

        Raises:
            EngineError: there is none.
        """
        self._scripted_stt.text, self._answer = question.text, question.answer
        self._loudspeaker.reset()
        self._microphone.say(question.pcm)
        try:
            async with asyncio.timeout(question.patience_s):
                while self._microphone.said_at is None:
                    await asyncio.sleep(_POLL_S)
                self._events.start_turn(self._microphone.said_at + question.sound_s)
                while (audible_at := self._loudspeaker.playback.audible_at) is None:
                    await self._loudspeaker.tick()
        except TimeoutError:
            raise EngineError("expected an answer of the agent; got no sound in time") from None
        self._events.heard(audible_at)
        await self._session.interrupt(force=True)
        await asyncio.sleep(PAUSE_S)


class _Agent(Agent):
    """An agent that reports when the language model's text reaches its voice."""

    def __init__(self, events: TurnEvents) -> None:
        super().__init__(instructions="Answer in one short sentence.")
        self._events = events

    async def tts_node(
        self, text: AsyncIterable[str], model_settings: ModelSettings
    ) -> AsyncGenerator[rtc.AudioFrame, None]:
        """Speak as every agent does.

        A reply is often written before the session has decided that the user's turn is over; its
        text reaches the voice after that.
        """

        async def reported() -> AsyncIterator[str]:
            async for piece in text:
                self._events.token_written(time.monotonic())
                yield piece

        async for frame in Agent.default.tts_node(self, reported(), model_settings):
            yield frame


class _ScriptedSTT(stt.STT):
    """Returns the user's text as soon as it is asked to transcribe speech.

    LiveKit asks when its voice activity detection has reported the end, as for every transcriber
    that does not stream.

    Attributes:
        text: what the user says.
    """

    def __init__(self) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=False, interim_results=False))
        self.text = ""

    async def _recognize_impl(self, *_: Any, **options: Any) -> stt.SpeechEvent:
        said = stt.SpeechData(language=LanguageCode("en"), text=self.text)
        return stt.SpeechEvent(stt.SpeechEventType.FINAL_TRANSCRIPT, alternatives=[said])
