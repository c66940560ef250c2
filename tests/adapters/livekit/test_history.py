"""An interrupted reply in LiveKit's history: the words that were heard, whatever else goes on.

Issue numbers are those of livekit/agents.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from livekit.agents import (
    Agent,
    AgentStateChangedEvent,
    ModelSettings,
    function_tool,
    llm,
    tts,
)
from livekit.agents.llm import ChatMessage
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT, FlushSentinel, TimedString
from livekit.agents.voice import io
from livekit.agents.voice.speech_handle import SpeechHandle

from livekit import rtc
from testbed.listening import words_of
from testbed.livekit_conversation import (
    Conversation,
    DeafSTT,
    MakeVoice,
    committed,
    count,
    ended,
    heard,
    real_vad,
    seconds,
    talking,
    tokens,
)
from testbed.scripted_server import LOSES_ITS_TEXT, Script, ScriptedServer, Step
from testbed.server_process import ServerProcess
from testbed.servers import StartServer
from testbed.user_sounds import speech
from testbed.waiting import undisturbed, until
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.bench.livekit_devices import Loudspeaker

COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."

CUTS_S = (0.0, 0.75, 1.25)
"""In the middle of a word: near its start, the bytes of the voice decide what was heard."""

CUTS = {
    "en": ("Of course, I can help you with that. Your order left on Tuesday.", (1, 4, 7, 10)),
    "de": ("Guten Tag! Ihre Bestellung wurde heute Morgen verschickt.", (1, 2, 4, 6)),
    "zh": ("你好。您的订单昨天已经发出,三到五天之内就会送到。", (2, 6, 11, 16)),
}
"""Replies, and the words in the middle of which they are interrupted."""


async def words_in(served: ServerProcess, text: str = COUNTING) -> list[WordTimestamp]:
    """The words of `text` and their times."""
    return await words_of(served.websocket_url, text, voice="default", language="en")


def difference(conversation: Conversation, words: list[WordTimestamp], spoken: str) -> int:
    """By how many words the history is ahead of what was heard."""
    return count(words, spoken) - heard(words, conversation.loudspeaker.played_s)


async def pieces_of(stream: tts.SynthesizeStream | tts.ChunkedStream) -> list[TimedString]:
    """All words of a stream."""
    return [
        piece
        async for event in stream
        for piece in event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])
    ]


# An interruption.


@pytest.mark.alone  # a listener who is late on a busy machine hears other words
async def test_an_interrupted_reply_is_committed_as_far_as_it_was_heard(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """Wherever the user interrupts, the history is within one word of what was heard (#2607)."""
    server = await start_server(throttle={"rtf": 0.8})

    async def cut_often(language: str, half: int) -> list[int]:
        text, cuts = CUTS[language]
        words = await words_of(server.websocket_url, text, voice="default", language=language)
        middles_s = [
            (words[index].start_sample + words[index + 1].start_sample) / 2 / SAMPLE_RATE_HZ
            for index in cuts[half::2]
        ]
        async with talking(make_voice(server, language=language)) as conversation:

            async def cut(at_s: float) -> int:
                spoken = await conversation.cut(at_s, *tokens(text))
                assert text.startswith(spoken.rstrip()) and spoken
                return count(words, spoken) - heard(words, conversation.loudspeaker.played_s)

            return [await undisturbed(partial(cut, at_s)) for at_s in middles_s]

    async with asyncio.TaskGroup() as group:
        cutting = [
            group.create_task(cut_often(language, half)) for language in CUTS for half in range(2)
        ]
    differences = sum((task.result() for task in cutting), [])
    assert all(abs(difference) <= 1 for difference in differences), differences
    assert sum(difference > 0 for difference in differences) <= 1, differences


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


class SlowLoudspeaker(Loudspeaker):
    """Accepts audio just before it plays, as the output of an avatar may."""

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """Wait until little audio is left to play."""
        await self.until(lambda: self.playback.received_s - self.played_s < 0.3)
        await super().capture_frame(frame)


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
        output = conversation.output
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


async def test_words_behind_a_stall_wait_for_their_sound(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """If the LLM stalls in mid-reply, no word after the gap is sent before its audio plays."""
    first, second = "One, two, three. ", "Four, five, six, seven, eight, nine."
    words = await words_of(served.websocket_url, second, voice="default", language="en")

    async def cut() -> tuple[str, int]:
        go_on = asyncio.Event()
        async with talking(make_voice(served)) as conversation:
            handle = conversation.reply(first, go_on, second)
            await conversation.loudspeaker.until(lambda: conversation.loudspeaker.is_dry)
            stalled_at = conversation.loudspeaker.played_s
            await asyncio.sleep(2.0)  # the stall: longer than the words after the gap take
            assert conversation.screen.text.strip() == first.strip()
            go_on.set()
            await conversation.played(stalled_at + 0.9)
            spoken = await conversation.interrupt(handle)
            return spoken, heard(words, conversation.loudspeaker.played_s - stalled_at)

    spoken, played = await undisturbed(cut)
    assert abs(count(words, spoken.removeprefix(first)) - played) <= 1
    assert spoken.startswith(first) and played >= 2


class TwoPartAgent(Agent):
    """Speaks its reply in two parts, each through a stream of its own."""

    async def llm_node(
        self, chat_ctx: Any, tools: Any, model_settings: ModelSettings
    ) -> AsyncIterator[Any]:
        """Yield both parts."""
        yield "One, two, three. "
        yield FlushSentinel()
        yield "Four, five, six, seven, eight."


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


class ShoutingAgent(Agent):
    """Changes the text on its way to the transcript and the history."""

    async def transcription_node(
        self, text: AsyncIterable[Any], model_settings: ModelSettings
    ) -> AsyncIterator[str]:
        """Yield the text in capitals."""
        async for piece in text:
            yield piece.upper()


async def test_an_agent_that_changes_its_transcript_keeps_it(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """LiveKit's own transcript stays where it is not the text that was spoken."""
    async with talking(make_voice(served), ShoutingAgent(instructions="")) as conversation:
        spoken = await conversation.cut(1.5, COUNTING)
        assert spoken and COUNTING.upper().startswith(spoken.rstrip())


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
        (message,) = [item for item in handle.chat_items if isinstance(item, ChatMessage)]
        assert message.interrupted
        spoken = message.text_content or ""
        assert difference(conversation, words, spoken) == 0
        assert 0 < count(words, spoken) < len(words)


async def test_a_user_who_barges_in_is_heard(served: ServerProcess, make_voice: MakeVoice) -> None:
    """With real voice activity detection, the history has the words heard before the barge-in."""
    words = await words_of(served.websocket_url, COUNTING, voice="default", language="en")
    voice_of_user = await speech(served.websocket_url, "Excuse me, could you wait a moment please?")
    turns = {"turn_detection": None, "interruption": {"resume_false_interruption": False}}
    async with talking(make_voice(served), vad=real_vad(), turn_handling=turns) as conversation:
        handle = conversation.reply(COUNTING)
        await conversation.played(1.0)
        conversation.microphone.say(voice_of_user)
        await ended(handle)
        assert handle.interrupted
        spoken = committed(handle)
        played = heard(words, conversation.loudspeaker.played_s)
        assert abs(count(words, spoken) - played) <= 1
        assert 2 <= played < len(words)


async def test_a_cough_pauses_the_reply_and_loses_nothing(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """After a false interruption of more than three seconds, the reply resumes and is complete."""
    cough = await speech(served.websocket_url, "Hm, hm, hm.")
    options = {
        "vad": real_vad(),
        "stt": DeafSTT(),
        "turn_handling": {
            "turn_detection": "stt",
            "interruption": {"false_interruption_timeout": 2.5},
        },
    }
    async with talking(make_voice(served), **options) as conversation:
        handle = conversation.reply(COUNTING)
        await conversation.played(1.0)
        conversation.microphone.say(cough)
        await conversation.loudspeaker.until(lambda: conversation.loudspeaker.is_paused)
        paused_at = asyncio.get_running_loop().time()
        await conversation.loudspeaker.until(lambda: not conversation.loudspeaker.is_paused)
        assert asyncio.get_running_loop().time() - paused_at >= 3.0
        await ended(handle)
        assert not handle.interrupted
        assert committed(handle) == COUNTING
        assert not conversation.errors


# Words of a scripted server.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("One <emphasis>two</emphasis> three.", "One <emphasis>two</emphasis>"),
        ("One, <spell>AB</spell>, three.", "One, <spell>AB</spell>,"),
        ('<sub alias="a b">20</sub> <break time="1s"/>. <<m|ɛ|t>> three', None),
        ("<speak>One two</speak> three.", "<speak>One two"),
    ],
)
async def test_a_word_that_was_heard_has_its_tags(
    make_voice: MakeVoice, text: str, said: str | None
) -> None:
    """As the LLM wrote them, with the marks behind them; a tag that means nothing comes next."""
    async with (
        ScriptedServer(script(0, 200, 2_500, end_s=9.0)).running() as server,
        talking(make_voice(server.addresses["ws"], markup=True)) as conversation,
    ):
        committed = (await conversation.cut(1.0, text)).rstrip()
        assert committed == (said or text.removesuffix(" three"))


@pytest.mark.parametrize("end_s", [0.0, 9.0], ids=["at the end", "before the end"])
async def test_a_word_that_left_by_an_estimate_is_not_committed_unheard(
    make_voice: MakeVoice, end_s: float
) -> None:
    """The server sends better times as soon as it has them; the cut goes by these."""
    moved_after_s = 0.0 if end_s > 0 else None
    spoken = replace(
        script(0, 200, 400, end_s=end_s), true_ms=(0, 200, 2_900), moved_after_s=moved_after_s
    )
    async with (
        ScriptedServer(spoken).running() as server,
        talking(make_voice(server.addresses["ws"])) as conversation,
    ):
        assert (await conversation.cut(1.0, "One two three.")).rstrip() == "One two"


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


TEXT = "One two three four five six seven eight nine ten."

WORDS_MS = tuple(range(0, 3000, 300))

SKIPPED_S = 0.6


def script(*words_ms: int, end_s: float = 0.0) -> Script:
    """Three seconds of audio and these words, at once."""
    return Script((Step(0.0, samples=3 * SAMPLE_RATE_HZ, words_ms=words_ms),), end_s=end_s)


HALVES = "One \ud83d", "\ude00 two three four five six seven eight nine ten."
"""Tokens of an LLM server that streams UTF-16: an emoji is divided."""


@pytest.mark.parametrize("agent", [Agent, ShoutingAgent])
@pytest.mark.parametrize("is_aligned", [False, True])
async def test_an_emoji_of_two_tokens_is_one_character_of_the_history(
    make_voice: MakeVoice, is_aligned: bool, agent: type[Agent]
) -> None:
    """Also where LiveKit shows the tokens themselves."""
    async with (
        ScriptedServer(script(*WORDS_MS)).running() as server,
        talking(
            make_voice(server.addresses["ws"]), agent(instructions=""),
            use_tts_aligned_transcript=is_aligned,
        ) as conversation,
    ):  # fmt: skip
        spoken = await conversation.cut(1.0, *HALVES)
        assert spoken.upper().startswith("ONE 😀 TWO THREE")
        if agent is Agent:
            played_s = conversation.loudspeaker.played_s
            assert spoken.replace("😀 ", "") == first_words(played_s)


class RoomLoudspeaker(Loudspeaker):
    """Behaves as the output of a room: after a pause it skips what it had queued, and says so."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def resume(self) -> None:
        """Go on behind the skipped audio."""
        size = round(SKIPPED_S * SAMPLE_RATE_HZ) * BYTES_PER_SAMPLE
        if self._is_playing and self.is_paused:
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
    session, output = conversation.session, conversation.output
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


# Without an interruption.


async def test_no_word_is_shown_before_it_sounds(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """The transcript follows playback, and shows each word before the next one is half spoken."""
    words = await words_of(served.websocket_url, COUNTING, voice="default", language="en")
    middles_s = [
        (word.start_sample + after.start_sample) / 2 / SAMPLE_RATE_HZ
        for word, after in zip(words, words[1:], strict=False)
    ]

    async def words_ahead() -> list[int]:
        ahead: list[int] = []
        async with talking(make_voice(served)) as conversation:
            handle = conversation.reply(*tokens(COUNTING))
            for at_s in middles_s:
                await conversation.played(at_s)
                shown = count(words, conversation.screen.text)
                ahead.append(shown - heard(words, conversation.loudspeaker.played_s))
            assert await ended(handle) == COUNTING
        return ahead

    ahead = await undisturbed(words_ahead)
    assert -1 <= min(ahead) and max(ahead) <= 0, ahead


async def test_a_server_without_words_drops_no_turn(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """Without word times, a whole reply is committed whole and an interrupted one in part."""
    server = await start_server(throttle={"without_words": True})

    async def listen() -> None:
        async with talking(make_voice(server)) as conversation:
            assert await conversation.spoken(COUNTING) == COUNTING

    async def interrupt() -> None:
        async with talking(make_voice(server)) as conversation:
            spoken = await undisturbed(partial(conversation.cut, 1.5, COUNTING))
            assert COUNTING.startswith(spoken.rstrip())
            assert 1 <= len(spoken.split()) <= 7

    async with asyncio.TaskGroup() as group:
        group.create_task(listen())
        group.create_task(interrupt())


@pytest.mark.parametrize(
    "text",
    [
        'She said: "It costs $25."\n\nThen - well - she left!  Twice.\n',
        "Look at https://example.com/a?b=1 or write to me@example.com, o'clock.",
        "你好。今天是Monday,我们去公园。",
        "キャベツは100円です。ラーメンも。",
        "안녕하세요. 오늘은 좋은 날입니다.",
        "  Leading space, **markdown**, `code` and 😊 in between. ",
    ],
)
async def test_the_words_joined_are_the_text(
    served: ServerProcess, make_voice: MakeVoice, text: str
) -> None:
    """Every character that was pushed comes back once and in order."""
    voice = make_voice(served, language=None)
    async with voice.stream() as stream:
        for token in tokens(text):
            stream.push_text(token)
        stream.end_input()
        pieces = await pieces_of(stream)
    assert "".join(pieces) == text
    times = [time for piece in pieces for time in (piece.start_time, piece.end_time)]
    assert times == sorted(map(seconds, times))


async def test_the_words_have_the_best_times_known_when_the_audio_begins(
    make_voice: MakeVoice,
) -> None:
    """Some servers find better times before they send any audio."""
    audio = Step(0.2, samples=SAMPLE_RATE_HZ)
    spoken = Script(
        (Step(0.0, words_ms=(0, 200)), audio), end_s=0.2, true_ms=(100, 600), moved_after_s=0.1
    )
    async with (
        ScriptedServer(spoken).running() as server,
        make_voice(server.addresses["ws"]).stream() as stream,
    ):
        stream.push_text("One two")
        stream.end_input()
        assert [piece.start_time for piece in await pieces_of(stream)] == [0.1, 0.6]


async def test_a_reply_longer_than_the_server_takes_at_once_is_whole(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """The reply sends its text as the server speaks."""
    server = await start_server(max_text_chars=60)
    text = "It goes on and on. " * 12 + "😊 " * 9 + "It ends."
    async with make_voice(server, speed=4.0).stream() as stream:
        stream.push_text(text)
        stream.end_input()
        assert "".join(await pieces_of(stream)) == text


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
