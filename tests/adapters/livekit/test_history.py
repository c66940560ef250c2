"""An interrupted reply in the history: the words that were heard, whatever else goes on."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

import pytest
from livekit.agents import Agent, ModelSettings
from livekit.agents.llm import ChatMessage
from livekit.agents.types import FlushSentinel
from livekit.agents.voice.speech_handle import SpeechHandle

from livekit import rtc
from testbed.listening import words_of
from testbed.livekit_audio import MakeVoice, tokens
from testbed.livekit_conversation import Conversation, count, ended, heard, talking
from testbed.scripted_server import LOSES_ITS_TEXT, ScriptedServer
from testbed.server_process import ServerProcess
from testbed.servers import StartServer
from testbed.waiting import until
from voiceagent_tts.core import WordTimestamp
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.bench.livekit_devices import Loudspeaker

COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."
CUTS_S = (0.0, 0.75, 1.25)
"""In the middle of a word: near its start, the bytes of the voice decide what was heard."""


class LouderAgent(Agent):
    """Makes new frames of the voice's audio, as an effect does."""

    def tts_node(
        self, text: AsyncIterable[str], model_settings: ModelSettings
    ) -> AsyncIterable[rtc.AudioFrame]:
        """Copy every frame, without what LiveKit notes in it."""
        return self._remade(Agent.default.tts_node(self, text, model_settings))

    async def _remade(self, frames: AsyncIterable[rtc.AudioFrame]) -> AsyncIterator[Any]:
        async for frame in frames:
            samples = frame.samples_per_channel
            yield rtc.AudioFrame(bytes(frame.data), frame.sample_rate, frame.num_channels, samples)


class AppendingAgent(LouderAgent):
    """Adds silence to the end of its audio, as a jingle would be."""

    async def _remade(self, frames: AsyncIterable[rtc.AudioFrame]) -> AsyncIterator[Any]:
        async for frame in super()._remade(frames):
            yield frame
        yield rtc.AudioFrame(bytes(72_000), 24_000, 1, 36_000)


class ShortAgent(LouderAgent):
    """Takes the first two seconds of its audio."""

    async def _remade(self, frames: AsyncIterable[rtc.AudioFrame]) -> AsyncIterator[Any]:
        taken_s = 0.0
        async for frame in super()._remade(frames):
            yield frame
            taken_s += frame.duration
            if taken_s >= 2.0:
                return


class TwoStreamAgent(LouderAgent):
    """Speaks its text twice, through one stream after the other."""

    async def tts_node(
        self, text: AsyncIterable[str], model_settings: ModelSettings
    ) -> AsyncIterator[rtc.AudioFrame]:
        """Copy the frames of both."""
        whole = "".join([piece async for piece in text])
        for _ in range(2):
            async for frame in super().tts_node(_once(whole), model_settings):
                yield frame


class TwoTrackAgent(LouderAgent):
    """Speaks another text beside its own, in a task of its own, and plays that elsewhere."""

    async def tts_node(
        self, text: AsyncIterable[str], model_settings: ModelSettings
    ) -> AsyncIterator[rtc.AudioFrame]:
        """Begin when the other text can be heard."""
        is_heard = asyncio.Event()

        async def speak_elsewhere() -> None:
            async with self.session.tts.stream() as stream:
                stream.push_text("Please hold the line for a moment.")
                stream.end_input()
                async for _ in stream:
                    is_heard.set()

        elsewhere = asyncio.create_task(speak_elsewhere())
        await is_heard.wait()
        async for frame in super().tts_node(text, model_settings):
            yield frame
        await elsewhere


async def _once(text: str) -> AsyncIterator[str]:
    yield text


class SlowLoudspeaker(Loudspeaker):
    """Accepts audio just before it plays, as the output of an avatar may."""

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """Wait until little audio is left to play."""
        await self.until(lambda: self.playback.received_s - self.played_s < 0.3)
        await super().capture_frame(frame)


class ShoutingAgent(Agent):
    """Changes the text on its way to the transcript and the history."""

    async def transcription_node(
        self, text: AsyncIterable[Any], model_settings: ModelSettings
    ) -> AsyncIterator[str]:
        """Yield the text in capitals."""
        async for piece in text:
            yield piece.upper()


class TwoPartAgent(Agent):
    """Speaks its reply in two parts, each through a stream of its own."""

    async def llm_node(
        self, chat_ctx: Any, tools: Any, model_settings: ModelSettings
    ) -> AsyncIterator[Any]:
        """Yield both parts."""
        yield "One, two, three. "
        yield FlushSentinel()
        yield "Four, five, six, seven, eight."


@contextlib.asynccontextmanager
async def busy_loop() -> AsyncIterator[None]:
    """Block the event loop for 0.15 s again and again, as an agent with slow code does."""

    async def block() -> None:
        while True:
            time.sleep(0.15)
            await asyncio.sleep(0.005)

    blocking = asyncio.create_task(block())
    try:
        yield
    finally:
        blocking.cancel()
        await asyncio.wait({blocking})


async def words_in(served: ServerProcess, text: str = COUNTING) -> list[WordTimestamp]:
    """The words of `text` and their times."""
    return await words_of(served.websocket_url, text, voice="default", language="en")


def difference(conversation: Conversation, words: list[WordTimestamp], spoken: str) -> int:
    """By how many words the history is ahead of what was heard."""
    return count(words, spoken) - heard(words, conversation.loudspeaker.played_s)


@pytest.mark.parametrize("at_s", CUTS_S)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"use_tts_aligned_transcript": False}, id="words off"),
        pytest.param({"agent": LouderAgent(instructions="")}, id="new frames"),
    ],
)
async def test_the_history_is_what_was_heard(
    served: ServerProcess, make_voice: MakeVoice, options: dict[str, Any], at_s: float
) -> None:
    """Neither LiveKit's option for words nor a `tts_node` that makes new frames changes it."""
    words = await words_in(served)
    async with talking(make_voice(served), **options) as conversation:
        spoken = await conversation.cut(at_s, *tokens(COUNTING))
        assert COUNTING.startswith(spoken)
        assert difference(conversation, words, spoken) == 0


@pytest.mark.parametrize("agent", [AppendingAgent, ShortAgent, TwoStreamAgent, TwoTrackAgent])
async def test_what_else_a_tts_node_does_changes_no_history(
    served: ServerProcess, make_voice: MakeVoice, agent: type[LouderAgent]
) -> None:
    """It adds sound, ends early, or has a second stream behind the first or for another track."""
    words = await words_in(served)
    async with talking(make_voice(served), agent(instructions="")) as conversation:
        spoken = await conversation.cut(CUTS_S[-1], COUNTING)
        assert difference(conversation, words, spoken) == 0


@pytest.mark.parametrize("before", ["Yes.", "\U0001f44d"])
async def test_an_output_that_accepts_audio_late_changes_no_history(
    served: ServerProcess, make_voice: MakeVoice, before: str
) -> None:
    """Nor does a reply before it, with or without anything to hear."""
    words = await words_in(served)
    async with talking(make_voice(served), loudspeaker=SlowLoudspeaker()) as conversation:
        await conversation.spoken(before)
        for at_s in CUTS_S[1:]:
            spoken = await conversation.cut(at_s, *tokens(COUNTING))
            assert difference(conversation, words, spoken) == 0


async def test_a_busy_event_loop_changes_no_history(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """A loop that is blocked most of the time delays the cut, not the words before it."""
    words = await words_in(served)
    async with talking(make_voice(served)) as conversation, busy_loop():
        for at_s in (0.3, 0.9):
            spoken = await conversation.cut(at_s, COUNTING)
            assert difference(conversation, words, spoken) == 0


async def test_playback_may_begin_long_after_the_audio(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """With preemptive synthesis, LiveKit plays a reply seconds after it was made."""
    words = await words_in(served)
    async with talking(make_voice(served)) as conversation:
        output = conversation.session.output.audio
        assert output is not None
        output.pause()
        handle = conversation.reply(COUNTING)
        # LiveKit resumes the output once, when it begins to forward the reply.
        await until(lambda: not conversation.loudspeaker.is_paused, "the output is resumed")
        output.pause()
        await asyncio.sleep(2.2)
        output.resume()
        await conversation.played(0.8)
        spoken = await conversation.interrupt(handle)
        assert difference(conversation, words, spoken) == 0


async def test_both_parts_of_a_reply_are_in_the_history(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """Each part of a reply has audio of its own; the second one is interrupted."""
    first, second = "One, two, three. ", "Four, five, six, seven, eight."
    words = await words_in(served, second)
    async with talking(make_voice(served), TwoPartAgent(instructions="")) as conversation:
        handle = conversation.reply()
        await conversation.played(1.0)
        await conversation.loudspeaker.until(lambda: conversation.loudspeaker.played_s < 0.9)
        await conversation.played(0.9)
        spoken = await conversation.interrupt(handle)
        assert spoken.startswith(first)
        assert difference(conversation, words, spoken.removeprefix(first)) == 0


async def test_an_agent_that_changes_its_transcript_keeps_it(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """LiveKit's own transcript stays where it is not the text that was spoken."""
    async with talking(make_voice(served), ShoutingAgent(instructions="")) as conversation:
        spoken = await conversation.cut(1.5, COUNTING)
        assert spoken and COUNTING.upper().startswith(spoken.rstrip())


async def test_the_usage_of_an_interrupted_reply_is_counted(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """Also while its audio is still being made; the duration is that of synthesis."""
    server = await start_server(throttle={"rtf": 0.5})
    for voice, text in (
        (make_voice(server), "One, two, three, four."),
        (make_voice(server), COUNTING * 3),
    ):
        async with talking(voice) as conversation:
            await conversation.cut(1.3, text)
            await until(lambda: bool(conversation.metrics), "the usage is reported")
            (metrics,) = conversation.metrics
            assert metrics.characters_count == len(text)
            assert metrics.duration < metrics.audio_duration > 1.3
            assert conversation.session.usage.model_usage


async def test_a_reply_ends_for_livekit_when_it_was_made(
    served: ServerProcess, make_voice: MakeVoice, caplog: pytest.LogCaptureFixture
) -> None:
    """LiveKit then does not complain about an interruption, and counts no playback as synthesis."""
    async with talking(make_voice(served)) as conversation:
        await conversation.cut(1.0, COUNTING)
        (metrics,) = conversation.metrics
        assert metrics.duration < 1.0 < metrics.audio_duration
    assert not [text for text in caplog.messages if "before text/audio input is done" in text]


def interrupted_text(handle: SpeechHandle) -> str:
    """The text of a reply that the history marks as interrupted."""
    (message,) = [item for item in handle.chat_items if isinstance(item, ChatMessage)]
    assert message.interrupted
    return message.text_content or ""


async def test_a_plugin_that_is_closed_in_a_reply_commits_what_was_heard(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """The reply counts as interrupted, and its audio that has arrived is heard and committed."""
    server = await start_server(throttle={"rtf": 0.5})
    words = await words_of(server.websocket_url, COUNTING, voice="default", language="en")
    voice = make_voice(server)
    async with talking(voice) as conversation:
        handle = conversation.reply(COUNTING)
        await conversation.played(0.8)
        await voice.aclose()
        await ended(handle)
        spoken = interrupted_text(handle)
        assert difference(conversation, words, spoken) == 0
        assert 0 < count(words, spoken) < len(words)


async def test_words_that_were_noise_are_not_in_the_history(make_voice: MakeVoice) -> None:
    """A model that loses its text fails the reply, after one more try, and nothing was heard."""
    async with (
        ScriptedServer(LOSES_ITS_TEXT).running() as server,
        talking(make_voice(server.addresses["ws"])) as conversation,
    ):
        assert await conversation.spoken("OK") == ""
        assert conversation.history == []
        (failed,) = conversation.errors
        assert f"{ErrorCode.TEXT_LOST}: " in str(failed.error)
