"""A real LiveKit session around the plugin: a speaker in real time, an LLM with a script."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from livekit.agents import (
    Agent,
    AgentSession,
    APIConnectOptions,
    inference,
    llm,
    stt,
    tts,
)
from livekit.agents.llm import ChatMessage
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS
from livekit.agents.voice import io
from livekit.agents.voice.agent_session import SessionConnectOptions
from livekit.agents.voice.speech_handle import SpeechHandle
from livekit.agents.voice.transcription import TranscriptSynchronizer

from livekit import rtc
from voiceagent_tts.client import TTSClient
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, WordTimestamp

TICK_S = 0.01
MICROPHONE_RATE_HZ = 16_000
HEARD_S = 0.02
"""A word was heard when so much of it was played."""


class Speaker(io.AudioOutput):
    """Plays in real time, can be paused, and knows what it played."""

    def __init__(self) -> None:
        super().__init__(
            label="Speaker",
            capabilities=io.AudioOutputCapabilities(pause=True),
            sample_rate=SAMPLE_RATE_HZ,
        )
        self.played = bytearray()
        """What was heard of the last utterance."""
        self._waiting: deque[bytes] = deque()
        self._is_capturing = False
        self._is_playing = False
        self._is_paused = False
        self._is_dry = False
        self._progress = asyncio.Condition()

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if not self._is_capturing:
            self._is_capturing = True
            self.forget()
        self._waiting.append(bytes(frame.data))

    def flush(self) -> None:
        super().flush()
        self._is_capturing = False

    def forget(self) -> None:
        """Another utterance is to come."""
        self.played, self._is_dry = bytearray(), False

    def clear_buffer(self) -> None:
        if self._is_playing or self._waiting:
            self._finish(interrupted=True)

    def pause(self) -> None:
        super().pause()
        self._is_paused = True

    def resume(self) -> None:
        super().resume()
        self._is_paused = False

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def played_s(self) -> float:
        return len(self.played) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ

    async def play(self) -> None:
        """Be a sound card: what it holds plays on while the program is busy elsewhere."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            if not self._is_paused:
                self._take(now - last if self._is_playing else TICK_S)
            last = now
            async with self._progress:
                self._progress.notify_all()

    def _take(self, seconds: float) -> None:
        """Play so much, or what there is of it."""
        if not self._waiting:
            if self._is_playing and not self._is_capturing:
                self._finish(interrupted=False)
            self._is_dry = self._is_playing
            return
        if not self._is_playing:
            self._is_playing = True
            self.on_playback_started(created_at=time.time())
        self._is_dry = False
        count = round(seconds * SAMPLE_RATE_HZ) * BYTES_PER_SAMPLE
        while count > 0 and self._waiting:
            data = self._waiting.popleft()
            self.played += data[:count]
            if len(data) > count:
                self._waiting.appendleft(data[count:])
            count -= len(data)

    def _finish(self, *, interrupted: bool) -> None:
        self._waiting.clear()
        self._is_playing = False
        self.on_playback_finished(playback_position=self.played_s, interrupted=interrupted)

    @property
    def is_dry(self) -> bool:
        """Whether more sound is wanted than there is."""
        return self._is_dry

    async def tick(self) -> None:
        """Wait a moment."""
        async with self._progress:
            await self._progress.wait()

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until `is_true`, which is asked after every tick."""
        async with self._progress:
            await self._progress.wait_for(is_true)


class Transcript(io.TextOutput):
    """Where the session shows the transcript."""

    def __init__(self) -> None:
        super().__init__(label="Transcript", next_in_chain=None)
        self.text = ""

    async def capture_text(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


class Microphone(io.AudioInput):
    """A silent room in which somebody can speak; gives 20 ms at a time, in real time."""

    def __init__(self) -> None:
        super().__init__(label="Microphone")
        self._speech = b""
        self._tick_at = time.monotonic()

    def say(self, pcm: bytes) -> None:
        """Speak 16 kHz PCM from now on."""
        self._speech += pcm

    async def __anext__(self) -> rtc.AudioFrame:
        self._tick_at = max(self._tick_at + 0.02, time.monotonic() - 0.1)
        await asyncio.sleep(self._tick_at - time.monotonic())
        samples = MICROPHONE_RATE_HZ // 50
        size = samples * BYTES_PER_SAMPLE
        data, self._speech = self._speech[:size].ljust(size, b"\0"), self._speech[size:]
        return rtc.AudioFrame(data, MICROPHONE_RATE_HZ, 1, samples)


class DeafSTT(stt.STT):
    """Understands nothing: sound without words, such as a cough."""

    def __init__(self) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=True, interim_results=False))

    async def _recognize_impl(self, *args: Any, **kwargs: Any) -> stt.SpeechEvent:
        return stt.SpeechEvent(stt.SpeechEventType.FINAL_TRANSCRIPT)

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS, **kwargs: Any
    ) -> stt.RecognizeStream:
        return _DeafStream(stt=self, conn_options=conn_options)


class _DeafStream(stt.RecognizeStream):
    async def _run(self) -> None:
        async for _ in self._input_ch:
            pass


class ScriptedLLM(llm.LLM):
    """Says what it was told to say, piece by piece; where a piece is an event, it waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.script: tuple[str | asyncio.Event, ...] = ()

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool] | None = None,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
        **options: Any,
    ) -> llm.LLMStream:
        return _ScriptedStream(self, chat_ctx=chat_ctx, tools=[], conn_options=conn_options)


class _ScriptedStream(llm.LLMStream):
    async def _run(self) -> None:
        assert isinstance(self._llm, ScriptedLLM)
        for piece in self._llm.script:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
                continue
            delta = llm.ChoiceDelta(role="assistant", content=piece)
            self._event_ch.send_nowait(llm.ChatChunk(id="reply", delta=delta))


class Conversation:
    """One agent turn after the other, and what the history says of them."""

    def __init__(self, voice: tts.TTS, **options: Any) -> None:
        self.voice = voice
        self.llm = ScriptedLLM()
        self.speaker = Speaker()
        self.microphone = Microphone()
        self.transcript = Transcript()
        self.metrics: list[Any] = []
        self.errors: list[tts.TTSError] = []
        voice.on("metrics_collected", self.metrics.append)
        voice.on("error", self.errors.append)
        fast = APIConnectOptions(max_retry=3, retry_interval=0.1, timeout=5.0)
        self.session: AgentSession[None] = AgentSession(
            **{
                "llm": self.llm,
                "tts": voice,
                "vad": None,
                "turn_handling": {"turn_detection": None},
                "aec_warmup_duration": None,
                "use_tts_aligned_transcript": True,
                "conn_options": SessionConnectOptions(tts_conn_options=fast),
            }
            | options
        )
        self._sync = TranscriptSynchronizer(
            next_in_chain_audio=self.speaker, next_in_chain_text=self.transcript
        )

    async def start(self) -> None:
        """Attach sound and text, and start the agent."""
        if self.session.vad is not None:
            self.session.input.audio = self.microphone
        self.session.output.audio = self._sync.audio_output
        self.session.output.transcription = self._sync.text_output
        await self.session.start(Agent(instructions=""))

    async def aclose(self) -> None:
        """End the session."""
        await self.session.aclose()
        await self._sync.aclose()

    def reply(self, *script: str | asyncio.Event) -> SpeechHandle:
        """Let the agent reply, piece by piece."""
        self.llm.script = script
        self.speaker.forget()
        return self.session.generate_reply(user_input="Go on.")

    async def spoken(self, *script: str | asyncio.Event) -> str:
        """A whole reply; returns what the history has of it."""
        handle = self.reply(*script)
        await handle.wait_for_playout()
        return committed(handle)

    async def cut(self, at_s: float, *script: str | asyncio.Event) -> str:
        """A reply that is interrupted when `at_s` of it was played; what the history has of it."""
        handle = self.reply(*script)
        await self.played(at_s)
        if not at_s:
            await self.speaker.tick()
        return await self.interrupt(handle)

    async def played(self, at_s: float) -> None:
        """Wait until `at_s` of the reply that begins next, or has begun, was played."""
        await self.speaker.until(lambda: self.speaker.played_s >= at_s)

    async def interrupt(self, handle: SpeechHandle) -> str:
        """The user barges in; returns what the history has of the reply."""
        handle.interrupt()
        await handle.wait_for_playout()
        return committed(handle)

    @property
    def history(self) -> list[str]:
        """The agent's messages in the session's history."""
        items = self.session.history.items
        return [
            item.text_content or ""
            for item in items
            if isinstance(item, ChatMessage) and item.role == "assistant"
        ]


@contextlib.asynccontextmanager
async def talking(voice: tts.TTS, **options: Any) -> AsyncIterator[Conversation]:
    """A conversation whose session runs; ends it and the voice."""
    conversation = Conversation(voice, **options)
    playing = asyncio.create_task(conversation.speaker.play())
    try:
        await conversation.start()
        yield conversation
    finally:
        await conversation.aclose()
        await voice.aclose()
        playing.cancel()
        await asyncio.wait({playing})


def real_vad() -> inference.VAD:
    """The voice activity detection that LiveKit bundles."""
    return inference.VAD(model="silero")


def committed(handle: SpeechHandle) -> str:
    """What the history has of a reply that has ended; "" where it was dropped."""
    texts = [item.text_content or "" for item in handle.chat_items if isinstance(item, ChatMessage)]
    return "".join(texts)


async def words_of(url: str, text: str, **options: Any) -> list[WordTimestamp]:
    """The words of `text` as the server times them, without LiveKit."""
    async with TTSClient(url) as client:
        events = client.say(text, max_lead_s=0.0, **options)
        return [event async for event in events if isinstance(event, WordTimestamp)]


def heard(words: list[WordTimestamp], played_s: float) -> int:
    """How many of `words` had begun to sound."""
    return sum(word.start_sample / SAMPLE_RATE_HZ + HEARD_S < played_s for word in words)


def count(words: list[WordTimestamp], text: str) -> int:
    """How many of `words` are in `text`, the beginning of a reply."""
    return sum(word.word.char_end <= len(text.rstrip()) for word in words)
