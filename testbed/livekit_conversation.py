"""Run a real LiveKit session with the plugin, a real-time loudspeaker and a scripted LLM."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from livekit.agents import Agent, AgentSession, APIConnectOptions, inference, stt, tts, utils
from livekit.agents.llm import ChatMessage
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, NotGivenOr
from livekit.agents.voice import io
from livekit.agents.voice.agent_session import SessionConnectOptions
from livekit.agents.voice.speech_handle import SpeechHandle

from testbed.waiting import PATIENCE_S
from voiceagent_tts.adapters.livekit import TTS
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.plugins.bench.bargein.livekit import ScriptedLLM, ScriptedSTT
from voiceagent_tts.plugins.bench.livekit_devices import Loudspeaker, Microphone, Screen, on_devices
from voiceagent_tts.plugins.bench.loads import tokens_of

tokens = tokens_of
HEARD_S = 0.02
"""Played length from which a word counts as heard."""
MakeVoice = Callable[..., TTS]


class DeafSTT(ScriptedSTT):
    """Transcribes all audio as nothing, like a sound without words, such as a cough."""

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS, **options: Any
    ) -> stt.RecognizeStream:
        return _DeafStream(stt=self, conn_options=conn_options)


class _DeafStream(stt.RecognizeStream):
    async def _run(self) -> None:
        async for _ in self._input_ch:
            pass


class Conversation:
    """A running session: makes replies, interrupts them, and reads them in the history."""

    def __init__(
        self, voice: tts.TTS, loudspeaker: Loudspeaker | None = None, **options: Any
    ) -> None:
        self._script: tuple[str | asyncio.Event, ...] = ()
        self.loudspeaker = loudspeaker or Loudspeaker()
        self.microphone = Microphone()
        self.screen = Screen()
        self.metrics: list[Any] = []
        self.errors: list[tts.TTSError] = []
        voice.on("metrics_collected", self.metrics.append)
        voice.on("error", self.errors.append)
        fast = APIConnectOptions(max_retry=3, retry_interval=0.1, timeout=5.0)
        self.session: AgentSession[None] = AgentSession(
            **{
                "llm": ScriptedLLM(self._written),
                "tts": voice,
                "vad": None,
                "turn_handling": {"turn_detection": None},
                "aec_warmup_duration": None,
                "use_tts_aligned_transcript": True,
                "conn_options": SessionConnectOptions(tts_conn_options=fast),
            }
            | options
        )

    def reply(self, *script: str | asyncio.Event) -> SpeechHandle:
        self._script = script
        self.loudspeaker.reset()
        return self.session.generate_reply(user_input="Go on.")

    async def _written(self) -> AsyncIterator[str]:
        """Yield the pieces of the script; one that is an event is waited for."""
        for piece in self._script:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            else:
                yield piece

    async def spoken(self, *script: str | asyncio.Event) -> str:
        return await ended(self.reply(*script))

    async def cut(self, at_s: float, *script: str | asyncio.Event) -> str:
        """Interrupt a reply when `at_s` of it were played; returns its text in the history."""
        handle = self.reply(*script)
        await self.played(at_s)
        if not at_s:
            await self.loudspeaker.tick()
        return await self.interrupt(handle)

    async def played(self, at_s: float) -> None:
        """Wait until `at_s` of the current or next reply were played."""
        async with asyncio.timeout(PATIENCE_S):
            await self.loudspeaker.until(lambda: self.loudspeaker.played_s >= at_s)

    async def interrupt(self, handle: SpeechHandle) -> str:
        handle.interrupt()
        return await ended(handle)

    @property
    def output(self) -> io.AudioOutput:
        output = self.session.output.audio
        assert output is not None
        return output

    @property
    def history(self) -> list[str]:
        items = self.session.history.items
        return [
            item.text_content or ""
            for item in items
            if isinstance(item, ChatMessage) and item.role == "assistant"
        ]


@contextlib.asynccontextmanager
async def talking(
    voice: tts.TTS,
    agent: Agent | None = None,
    loudspeaker: Loudspeaker | None = None,
    **options: Any,
) -> AsyncIterator[Conversation]:
    """Run a conversation with `agent`, or a plain one; closes it and the voice afterwards."""
    conversation = Conversation(voice, loudspeaker, **options)
    session = conversation.session
    microphone = None if session.vad is None else conversation.microphone
    devices = conversation.loudspeaker, microphone, conversation.screen
    try:
        async with on_devices(session, agent or Agent(instructions=""), *devices):
            yield conversation
    finally:
        async with asyncio.timeout(PATIENCE_S):
            await voice.aclose()


def real_vad() -> inference.VAD:
    return inference.VAD(model="silero")


async def ended(handle: SpeechHandle) -> str:
    """Wait for the end of a reply; returns its text in the history."""
    async with asyncio.timeout(PATIENCE_S):
        await handle.wait_for_playout()
    return committed(handle)


def committed(handle: SpeechHandle) -> str:
    """Return the history's text of a reply that has ended; "" if LiveKit dropped it."""
    texts = [item.text_content or "" for item in handle.chat_items if isinstance(item, ChatMessage)]
    return "".join(texts)


def heard(words: list[WordTimestamp], played_s: float) -> int:
    return sum(word.start_sample / SAMPLE_RATE_HZ + HEARD_S < played_s for word in words)


def count(words: list[WordTimestamp], text: str) -> int:
    return sum(word.word.char_end <= len(text.rstrip()) for word in words)


def seconds(time: NotGivenOr[float]) -> float:
    """Return a time; fail if it was not given."""
    assert utils.is_given(time)
    return time


def check_frames(events: list[tts.SynthesizedAudio]) -> None:
    """Check for one request, one segment, reasonable frame lengths, and a final last frame."""
    assert {event.request_id for event in events} == {events[0].request_id} != {""}
    assert len({event.segment_id for event in events}) == 1
    assert [event.is_final for event in events] == [False] * (len(events) - 1) + [True]
    assert all(0 < event.frame.duration < 0.25 for event in events)
    assert {event.frame.sample_rate for event in events} == {SAMPLE_RATE_HZ}
    assert {event.frame.num_channels for event in events} == {1}
    assert not bytes(events[0].frame.data).startswith((b"RIFF", b"OggS", b"ID3"))
