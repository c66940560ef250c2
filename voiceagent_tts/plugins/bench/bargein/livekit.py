"""Barge-ins in a LiveKit `AgentSession`: its synchronizer and voice activity detection, real time.

A user speaks, the agent replies, the user interrupts by speaking again, and so on. The STT and the
LLM are scripted: the STT always returns one text, and the LLM writes its next reply. Everything
between is LiveKit's and the text-to-speech plugin's.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import aiohttp
from livekit.agents import (
    Agent,
    AgentSession,
    APIConnectOptions,
    LanguageCode,
    inference,
    llm,
    stt,
    tts,
)
from livekit.agents.llm import ChatMessage
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS
from livekit.agents.voice.agent_session import SessionConnectOptions
from livekit.agents.voice.events import SpeechCreatedEvent
from livekit.agents.voice.speech_handle import SpeechHandle

from livekit import rtc
from voiceagent_tts.plugins.bench.bargein.replies import USER_TEXT, Cut
from voiceagent_tts.plugins.bench.bargein.session import (
    ANSWER_PATIENCE_S,
    LONGEST_WAIT_S,
    TRIES,
    Call,
    Reply,
)
from voiceagent_tts.plugins.bench.livekit_devices import (
    Loudspeaker,
    Microphone,
    Playback,
    Screen,
    on_devices,
)

_SILENT_FRAMES = 5
"""Number of silent frames after which the STT returns its text."""
_TURNS: dict[str, Any] = {
    "turn_detection": "vad",
    "endpointing": {"min_delay": 0.1, "max_delay": 0.5},
    "interruption": {"min_duration": 0.1, "false_interruption_timeout": 4.0},
    "preemptive_generation": {"enabled": False},
}
"""Settings that interrupt early, so that cuts can fall into the first words."""
_REACTION_S = 0.14
"""Approximate time from the user's first sound to the agent's silence."""
_FAST = APIConnectOptions(max_retry=3, retry_interval=0.1, timeout=5.0)


async def talk(
    call: Call,
    cuts: Sequence[Cut],
    inject_fault: Callable[[], object],
    on_reply: Callable[[Reply], None],
) -> None:
    """Play `cuts` in a session of their own."""
    async with aiohttp.ClientSession() as http:
        voice: tts.TTS = call.make_service(cuts[0].language, http_session=http)
        async with contextlib.aclosing(voice):
            agent = _Agent(voice, cuts, call, inject_fault)
            devices = agent.loudspeaker, agent.microphone, Screen()
            async with on_devices(agent.session, Agent(instructions=""), *devices):
                agent.microphone.say(call.user_pcm)
                for _ in cuts:
                    on_reply(await agent.reply())


class _Agent:
    """A session, its devices, and a simulated user."""

    def __init__(
        self,
        voice: tts.TTS,
        cuts: Sequence[Cut],
        call: Call,
        inject_fault: Callable[[], object],
    ) -> None:
        self._inject_fault = inject_fault
        self.loudspeaker, self.microphone = Loudspeaker(), Microphone()
        self._call = call
        self._cuts = deque(cuts)
        self._writing: asyncio.Queue[Cut] = asyncio.Queue()  # replies that have begun
        self._handle: SpeechHandle | None = None
        self.session: AgentSession[None] = AgentSession(
            stt=ScriptedSTT(),
            vad=inference.VAD(model="silero"),
            llm=ScriptedLLM(self._next_reply),
            tts=voice,
            turn_handling=_TURNS,  # pyright: ignore[reportArgumentType]
            aec_warmup_duration=None,
            use_tts_aligned_transcript=True,
            tts_text_transforms=None,
            conn_options=SessionConnectOptions(tts_conn_options=_FAST, max_unrecoverable_errors=99),
        )
        self.session.on("speech_created", self._note_handle)

    async def _next_reply(self) -> AsyncIterator[str]:
        """The tokens of the next reply; none after the last one."""
        if self._cuts:
            self._writing.put_nowait(cut := self._cuts.popleft())
            async for token in cut.written():
                yield token

    def _note_handle(self, event: SpeechCreatedEvent) -> None:
        self._handle = event.speech_handle

    async def reply(self) -> Reply:
        """Play the agent's next reply until the user has interrupted it."""
        cut = await self._begun()
        handle = self._handle
        assert handle is not None
        self.loudspeaker.reset()
        if cut.fault_at_s is not None:
            await self._listen(handle, cut.fault_at_s, LONGEST_WAIT_S)
            self._inject_fault()
        await self._listen(handle, cut.at_s - _REACTION_S, cut.patience_s)
        said_at = time.monotonic()
        self.microphone.say(self._call.user_pcm)
        await asyncio.wait_for(handle.wait_for_playout(), LONGEST_WAIT_S)
        return self._result(cut, handle, self.loudspeaker.playback, said_at)

    async def _begun(self) -> Cut:
        """Wait for the agent's next reply; the user asks again if none starts."""
        for _ in range(TRIES):
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(self._writing.get(), ANSWER_PATIENCE_S)
            self.microphone.say(self._call.user_pcm)
        raise TimeoutError("the agent does not answer")

    async def _listen(self, handle: SpeechHandle, until_s: float, patience_s: float) -> None:
        """Wait until `until_s` were played, or the reply was silent for over `patience_s`."""

        def is_time() -> bool:
            played = self.loudspeaker.playback
            is_far_enough = bool(played.pcm) and played.played_s >= until_s
            return is_far_enough or handle.done() or played.dry_s > patience_s

        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.loudspeaker.until(is_time), LONGEST_WAIT_S)

    def _result(self, cut: Cut, handle: SpeechHandle, played: Playback, said_at: float) -> Reply:
        items = [item for item in handle.chat_items if isinstance(item, ChatMessage)]
        halted_at = played.halted_at or played.ended_at
        return Reply(
            cut=cut,
            was_interrupted=handle.interrupted,
            played=bytes(played.pcm),
            committed="".join(item.text_content or "" for item in items),
            received_s=played.received_s,
            dry_s=played.dry_s,
            cancel_ms=1000 * max(0.0, played.ended_at - halted_at),
            barge_in_ms=1000 * (played.ended_at - said_at),
        )


class ScriptedLLM(llm.LLM):
    """Writes the tokens of the replies that `next_reply` returns."""

    def __init__(self, next_reply: Callable[[], AsyncIterator[str]]) -> None:
        super().__init__()
        self._next_reply = next_reply

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool] | None = None,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
        **options: Any,
    ) -> llm.LLMStream:
        """Write the next reply."""
        writing = _Writing(self, chat_ctx=chat_ctx, tools=[], conn_options=conn_options)
        writing.reply = self._next_reply()
        return writing


class _Writing(llm.LLMStream):
    reply: AsyncIterator[str]

    async def _run(self) -> None:
        async for token in self.reply:
            delta = llm.ChoiceDelta(role="assistant", content=token)
            self._event_ch.send_nowait(llm.ChatChunk(id="reply", delta=delta))


class ScriptedSTT(stt.STT):
    """Returns one fixed text whenever the user has spoken."""

    def __init__(self) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=True, interim_results=False))

    async def _recognize_impl(self, *args: Any, **options: Any) -> stt.SpeechEvent:
        return _understood()

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS, **options: Any
    ) -> stt.RecognizeStream:
        """Hear the user."""
        return _ScriptedHearing(stt=self, conn_options=conn_options)


class _ScriptedHearing(stt.RecognizeStream):
    async def _run(self) -> None:
        silent_frames = _SILENT_FRAMES
        async for frame in self._input_ch:
            if not isinstance(frame, rtc.AudioFrame):
                continue
            silent_frames = 0 if any(bytes(frame.data)) else silent_frames + 1
            if silent_frames == _SILENT_FRAMES:
                self._event_ch.send_nowait(_understood())


def _understood() -> stt.SpeechEvent:
    said = stt.SpeechData(language=LanguageCode("en"), text=USER_TEXT)
    return stt.SpeechEvent(stt.SpeechEventType.FINAL_TRANSCRIPT, alternatives=[said])
