"""The history of a reply whose output skips or does not pause, or beside which others speak."""

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from livekit.agents import Agent, AgentStateChangedEvent, ModelSettings, function_tool, llm, tts
from livekit.agents.voice import io
from livekit.agents.voice.speech_handle import SpeechHandle

from testbed.livekit_audio import MakeVoice
from testbed.livekit_conversation import Conversation, talking
from testbed.scripted_server import Script, ScriptedServer, Step
from testbed.waiting import until
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.plugins.bench.livekit_devices import Loudspeaker

TEXT = "One two three four five six seven eight nine ten."
WORDS_MS = tuple(range(0, 3000, 300))
SKIPPED_S = 0.6


def script(*words_ms: int) -> Script:
    """Three seconds of audio and these words, at once."""
    return Script((Step(0.0, samples=3 * SAMPLE_RATE_HZ, words_ms=words_ms),), end_s=0.0)


class RoomLoudspeaker(Loudspeaker):
    """Behaves as the output of a room: after a pause it skips what it had queued, and says so."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def resume(self) -> None:
        """Go on behind the skipped audio."""
        size = round(SKIPPED_S * SAMPLE_RATE_HZ) * BYTES_PER_SAMPLE
        if self._is_playing and self._is_paused:
            queued = b"".join(self._waiting)
            self._waiting.clear()
            self._waiting.append(queued[size:])
            self.skipped_s += SKIPPED_S
        super().resume()

    def _finish(self, *, interrupted: bool) -> None:
        position_s = self.played_s + self.skipped_s
        self.on_playback_progressed(started_at=time.time(), offset=0.0, duration=position_s)
        super()._finish(interrupted=interrupted)


class RestlessLoudspeaker(Loudspeaker):
    """Claims that it can pause, and plays on, as the output of LiveKit's remote console."""

    pause = io.AudioOutput.pause
    resume = io.AudioOutput.resume


def pause(conversation: Conversation, *, resumes: bool = False) -> None:
    """Pause or resume the reply as LiveKit does when it hears the user."""
    session = conversation.session
    output = session.output.audio
    assert output is not None
    (output.resume if resumes else output.pause)()
    states = ("listening", "speaking") if resumes else ("speaking", "listening")
    session.emit(
        "agent_state_changed", AgentStateChangedEvent(old_state=states[0], new_state=states[1])
    )


def first_words(seconds: float) -> str:
    """The words of `TEXT` that were heard in its first `seconds`."""
    return " ".join(TEXT.split()[: sum(ms + 20 <= 1000 * seconds for ms in WORDS_MS)])


@contextlib.asynccontextmanager
async def replying(
    make_voice: MakeVoice, loudspeaker: Loudspeaker
) -> AsyncIterator[tuple[Conversation, SpeechHandle]]:
    """Play a reply of `TEXT` on a loudspeaker, which LiveKit pauses after 0.45 s."""
    async with (
        ScriptedServer(script(*WORDS_MS)).running() as server,
        talking(make_voice(server.addresses["ws"]), loudspeaker=loudspeaker) as conversation,
    ):
        handle = conversation.reply(TEXT)
        await conversation.played(0.45)
        pause(conversation)
        yield conversation, handle


async def test_what_an_output_skips_after_a_pause_counts_as_played(make_voice: MakeVoice) -> None:
    """The position that a room's output reports is believed: LiveKit never revises it."""
    loudspeaker = RoomLoudspeaker()
    async with replying(make_voice, loudspeaker) as (conversation, handle):
        pause(conversation, resumes=True)
        await conversation.played(1.05)
        spoken = await conversation.interrupt(handle)
        assert spoken.rstrip() == first_words(loudspeaker.played_s + SKIPPED_S)


async def test_an_output_that_does_not_pause_is_heard_all_the_time(make_voice: MakeVoice) -> None:
    """LiveKit "listens" in the meantime; the listener hears the reply go on."""
    loudspeaker = RestlessLoudspeaker()
    async with replying(make_voice, loudspeaker) as (conversation, handle):
        await conversation.played(1.35)
        spoken = await conversation.interrupt(handle)
        assert spoken.rstrip() == first_words(loudspeaker.played_s)


async def test_a_probe_of_a_fallback_is_not_the_reply_that_is_heard(make_voice: MakeVoice) -> None:
    """LiveKit lets a TTS that had failed speak a reply once more, to find out whether it works."""
    async with (
        ScriptedServer(script(0, 40, 80)).running() as returning,
        ScriptedServer(script(0, 1500, 2900)).running() as other,
    ):
        first = make_voice(returning.addresses["ws"])
        probed: list[object] = []
        first.on("words", lambda *words: probed.append(words))
        both = tts.FallbackAdapter([first, make_voice(other.addresses["ws"])])
        both._status[0].available = False  # as after a failure
        async with talking(both) as conversation:
            handle = conversation.reply("One two three.")
            await until(lambda: both._status[0].available, "the first one is found again")
            await conversation.played(1.2)
            assert (await conversation.interrupt(handle)).rstrip() == "One"
        assert not probed
        await first.aclose()


class HoldingAgent(Agent):
    """Speaks "Please hold on." on another output while it looks something up."""

    def __init__(self, voice: tts.TTS) -> None:
        super().__init__(instructions="")
        self.voice = voice

    @function_tool
    async def look_up(self) -> str:
        """Look something up."""
        async with self.voice.stream() as stream:
            stream.push_text("Please hold on.")
            stream.end_input()
            assert [event async for event in stream]
        return "found"

    async def llm_node(
        self, chat_ctx: llm.ChatContext, tools: Any, model_settings: ModelSettings
    ) -> AsyncIterator[Any]:
        """Call the tool, then speak."""
        if any(item.type == "function_call_output" for item in chat_ctx.items):
            yield "One two three."
            return
        call = llm.FunctionToolCall(name="look_up", arguments="{}", call_id="1")
        delta = llm.ChoiceDelta(role="assistant", tool_calls=[call])
        yield llm.ChatChunk(id="call", delta=delta)


@pytest.mark.parametrize("has_transcript", [True, False])
async def test_what_a_tool_speaks_elsewhere_is_no_reply(
    make_voice: MakeVoice, has_transcript: bool
) -> None:
    """Only what the session plays enters its history."""
    async with ScriptedServer(script(0, 1500, 2900)).running() as server:
        voice = make_voice(server.addresses["ws"])
        async with talking(voice, HoldingAgent(voice)) as conversation:
            if not has_transcript:
                conversation.session.output.transcription = None
                conversation.session.output.audio = conversation.loudspeaker
            handle = conversation.reply()
            await conversation.played(1.2)
            assert (await conversation.interrupt(handle)).rstrip() == "One"
