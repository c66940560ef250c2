"""The Pipecat service on real pipelines: the history has the words that were heard."""

import asyncio
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pipecat.frames.frames import (
    AggregatedTextFrame,
    Frame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.services.tts_service import TextAggregationMode
from pipecat.utils.text.simple_text_aggregator import SimpleTextAggregator

from testbed.pipecat_conversation import is_exact_part, service, speaks, talking
from testbed.server_process import ServerProcess
from testbed.servers import StartServer
from testbed.waiting import undisturbed, until
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService
from voiceagent_tts.client import TTSClient
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.demo.realtime_file_transport import Utterance
from voiceagent_tts.protocol.client_connection import ClientAudio

COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."
SIXTEEN = "Eight nine five seventy zero seventy. Nineteen thirteen four seventeen sixty eighty."
CUT_POINTS_S = [0.4 + 0.31 * k for k in range(8)]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "Dr. Smith's bill is $42.50 today.\n\nOne - two  three! 😊 And (four)?"),
        ("en", "**Bold** words, `code` and\n- a list\n- of items."),
        ("de", "Guten Tag! Das kostet 3,50 Euro, d. h. nicht viel."),
        ("zh", "你好。今天是Monday,我们去公园。"),
    ],
)
async def test_a_whole_turn_is_committed_verbatim(
    served: ServerProcess, language: str, text: str
) -> None:
    """The history has the LLM's own text, including white space, in every script."""
    settings = VoiceAgentTTSService.Settings(language=language, speed=2.0)
    async with talking(service(served, settings=settings)) as conversation:
        await conversation.reply(*text)
        assert await conversation.spoken() == text
        assert conversation.committed == [text]
        assert not conversation.errors


async def test_a_reply_longer_than_the_server_takes_at_once_is_whole(
    start_server: StartServer,
) -> None:
    """The turn sends its text as the server speaks."""
    server = await start_server(max_text_chars=60)
    settings = VoiceAgentTTSService.Settings(language="en", speed=4.0)
    text = "It goes on and on. " * 12 + "😊 " * 9 + "It ends."
    async with talking(service(server, settings=settings)) as conversation:
        await conversation.reply(text)
        assert await conversation.spoken() == text
        assert not conversation.errors


@pytest.mark.parametrize("text", ["👍", "..."])
async def test_a_reply_with_nothing_to_speak_is_committed(served: ServerProcess, text: str) -> None:
    """It is no error, and the next reply is spoken as ever."""
    async with talking(service(served)) as conversation:
        await conversation.reply(text)
        assert await conversation.spoken() == text
        assert conversation.committed == [text]
        assert not conversation.errors
        await speaks(conversation)


async def test_a_pronunciation_is_said_and_the_history_has_the_word(served: ServerProcess) -> None:
    """As with Pipecat's own services; markup is on for it."""
    transform = VoiceAgentTTSService.pronunciation_transform_ipa({"Metformin": "mɛtˈfɔɹmɪn"})
    tts = service(served, text_transforms=[("*", transform)])
    assert tts.supports_pronunciations and not service(served).supports_pronunciations
    async with talking(tts) as conversation:
        context_id = await conversation.reply("Take ", "Metformin, ", "now.")
        assert await conversation.spoken() == "Take Metformin, now."
        said = [each.word.text for each in conversation.words[context_id]]
        assert said[1].startswith('<phoneme alphabet="ipa" ph="mɛtˈfɔɹmɪn">')


@pytest.mark.parametrize("rtf", [pytest.param(1 / 5, marks=pytest.mark.thorough), 1 / 1.2])
async def test_eight_cut_points_are_exact(start_server: StartServer, rtf: float) -> None:
    """Wherever the user interrupts, the history has exactly the words whose audio had started."""
    server = await start_server(throttle={"rtf": rtf})
    settings = VoiceAgentTTSService.Settings(language="en", speed=0.9)

    async def check(cut_points_s: list[float]) -> None:
        async with talking(service(server, settings=settings)) as conversation:

            async def cut(at_s: float) -> tuple[str, str]:
                context_id = await conversation.reply(SIXTEEN)
                await conversation.play(context_id, at_s)
                words = conversation.words[context_id]
                assert min(abs(word.start_sample / SAMPLE_RATE_HZ - at_s) for word in words) > 0.08
                return await conversation.cut(context_id, SIXTEEN)

            for at_s in cut_points_s:
                committed, heard = await undisturbed(
                    partial(cut, at_s), holds=is_exact_part(SIXTEEN)
                )
                assert committed == heard

    async with asyncio.TaskGroup() as group:
        for first in range(4):
            group.create_task(check(CUT_POINTS_S[first::4]))


async def test_a_segment_is_announced_behind_the_words_before_it(served: ServerProcess) -> None:
    """What RTVI shows a page: each segment, and then its words, although all text came at once."""
    async with talking(service(served, speed=3.0)) as conversation:
        seen: list[str] = []
        output = conversation.transport.output()

        @output.event_handler("on_after_push_frame")
        async def on_push(_: object, frame: Frame) -> None:
            if isinstance(frame, AggregatedTextFrame):
                kind = "word" if isinstance(frame, TTSTextFrame) else "segment"
                seen.append(f"{kind} {frame.text.strip()}")

        await conversation.reply("One, two. ", "Three! ", "... ", "Four, five.")
        assert await conversation.spoken() == "One, two. Three! ... Four, five."
    expected: list[str] = []
    for segment in ("One,", "two.", "Three!", "... Four,", "five."):
        expected += [f"segment {segment}", *(f"word {word}" for word in segment.split())]
    assert seen == expected


async def test_a_sentence_outside_of_a_reply_is_heard_at_once(served: ServerProcess) -> None:
    """What follows it does not wait until its silence ends it."""
    async with talking(service(served, speed=3.0, response_timeout_s=60.0)) as conversation:
        await conversation.push(AggregatedTextFrame("One.", "sentence"))
        await conversation.reply("Two.")
        assert await conversation.spoken() == "One. Two."


async def test_utterances_that_are_queued_enter_the_history_one_by_one(
    served: ServerProcess,
) -> None:
    """A reply and short sentences behind it are messages of their own, and none is lost."""
    said = ["Sure.", "Wait.", "Soon.", "Goodbye."]
    async with talking(service(served)) as conversation:
        reply, *behind = said
        await conversation.push(
            LLMFullResponseStartFrame(), LLMTextFrame(reply), LLMFullResponseEndFrame()
        )
        await conversation.push(*map(TTSSpeakFrame, behind))
        assert [await conversation.spoken() for _ in said] == said
        assert conversation.committed == said
        played = conversation.transport.utterances
        await until(lambda: len(played) == len(said), "the last one is heard")
        pauses_s = [
            (after.chunks[0][0] - sum(before.chunks[-1])) / SAMPLE_RATE_HZ
            for before, after in pairwise(played)
        ]
        silences_s = [quiet_end_s(utterance) for utterance in played[:-1]]
        pauses_s = [sum(each) for each in zip(pauses_s, silences_s, strict=True)]
        assert all(0.15 < pause_s < 0.6 for pause_s in pauses_s), pauses_s


def quiet_end_s(utterance: Utterance) -> float:
    """Silence at the end of what was played, in seconds."""
    samples = np.frombuffer(bytes(utterance.pcm), "<i2")
    return int(np.argmax(samples[::-1] != 0)) / SAMPLE_RATE_HZ


async def test_without_word_times_a_whole_turn_is_committed(start_server: StartServer) -> None:
    """Without word times and without an interruption, no text is lost (row D2)."""
    server = await start_server(throttle={"without_words": True})
    async with talking(service(server)) as conversation:
        await speaks(conversation)


async def test_the_samples_are_the_servers(start_server: StartServer) -> None:
    """No sample is lost, doubled or changed between the server and the transport."""
    server, twin = (
        await start_server(),
        await start_server(),
    )  # espeak's noise depends on its earlier texts
    async with TTSClient(twin.websocket_url) as client:
        events = client.say(COUNTING, language="en", voice="default")
        expected = b"".join([event.pcm async for event in events if isinstance(event, ClientAudio)])
    async with talking(service(server)) as conversation:
        await conversation.reply(COUNTING)
        await conversation.until(TTSStoppedFrame)
        frames = [frame for frame in conversation.frames if isinstance(frame, TTSAudioRawFrame)]
        assert b"".join(frame.audio for frame in frames) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"text_aggregator": SimpleTextAggregator()},
        {"text_aggregation_mode": TextAggregationMode.TOKEN},
        {"sample_rate": 8_000},
        {"sample_rate": 16_000},
        {"sample_rate": 44_100},
        pytest.param({"sample_rate": 32_000}, marks=pytest.mark.thorough),
    ],
)
async def test_other_ways_of_pipecat_work(served: ServerProcess, options: dict[str, Any]) -> None:
    """Pipecat's own aggregator, its token mode, and other sample rates commit the same text."""
    async with talking(service(served, **options)) as conversation:
        await conversation.reply("One, ", "two. ", "Three, four.")
        assert await conversation.spoken() == "One, two. Three, four."
        assert not conversation.errors
