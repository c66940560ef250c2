"""Problems with the history that LiveKit's users have reported, group by group, on real sessions.

Group numbers are those of the plugin's acceptance list; issue numbers are those of livekit/agents.
"""

import asyncio
from functools import partial

import pytest
from livekit.agents import tts
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT, TimedString

from testbed.listening import words_of
from testbed.livekit_audio import MakeVoice, seconds, tokens
from testbed.livekit_conversation import count, ended, heard, talking
from testbed.scripted_server import Script, ScriptedServer, Step
from testbed.server_process import ServerProcess
from testbed.servers import StartServer
from testbed.waiting import undisturbed
from voiceagent_tts.core import SAMPLE_RATE_HZ

COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."
CUTS = {
    "en": ("Of course, I can help you with that. Your order left on Tuesday.", (1, 4, 7, 10)),
    "de": ("Guten Tag! Ihre Bestellung wurde heute Morgen verschickt.", (1, 2, 4, 6)),
    "zh": ("你好。您的订单昨天已经发出,三到五天之内就会送到。", (2, 6, 11, 16)),
}
"""Replies, and the words in the middle of which they are interrupted."""


async def pieces_of(stream: tts.SynthesizeStream | tts.ChunkedStream) -> list[TimedString]:
    """All words of a stream."""
    return [
        piece
        async for event in stream
        for piece in event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])
    ]


# 1: the history has words that were not heard (#2607, #2580).


@pytest.mark.alone  # a listener who is late on a busy machine hears other words
@pytest.mark.parametrize(
    "throttle",
    [
        pytest.param(None, id="fast", marks=pytest.mark.thorough),
        pytest.param({"rtf": 0.8}, id="slow"),
    ],
)
async def test_group_01_an_interrupted_reply_is_committed_as_far_as_it_was_heard(
    start_server: StartServer, make_voice: MakeVoice, throttle: dict[str, float] | None
) -> None:
    """Wherever the user interrupts, the history is within one word of what was heard."""
    server = await start_server(throttle=throttle)

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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("One <emphasis>two</emphasis> three.", "One <emphasis>two</emphasis>"),
        ("One, <spell>AB</spell>, three.", "One, <spell>AB</spell>,"),
        ('<sub alias="a b">20</sub> <break time="1s"/>. <<m|ɛ|t>> three', None),
        ("<speak>One two</speak> three.", "<speak>One two"),
    ],
)
async def test_group_01_a_word_that_was_heard_has_its_tags(
    make_voice: MakeVoice, text: str, said: str | None
) -> None:
    """As the LLM wrote them, with the marks behind them; a tag that means nothing comes next."""
    script = Script((Step(0.0, samples=3 * SAMPLE_RATE_HZ, words_ms=(0, 200, 2_500)),), end_s=9.0)
    async with (
        ScriptedServer(script).running() as server,
        talking(make_voice(server.addresses["ws"], markup=True)) as conversation,
    ):
        committed = (await conversation.cut(1.0, text)).rstrip()
        assert committed == (said or text.removesuffix(" three"))


@pytest.mark.parametrize("end_s", [0.0, 9.0], ids=["at the end", "before the end"])
async def test_group_01_a_word_that_left_by_an_estimate_is_not_committed_unheard(
    make_voice: MakeVoice, end_s: float
) -> None:
    """The server sends better times as soon as it has them; the cut goes by these."""
    script = Script(
        (Step(0.0, samples=3 * SAMPLE_RATE_HZ, words_ms=(0, 200, 400)),),
        end_s=end_s,
        true_ms=(0, 200, 2_900),
        moved_after_s=0.0 if end_s > 0 else None,
    )
    async with (
        ScriptedServer(script).running() as server,
        talking(make_voice(server.addresses["ws"])) as conversation,
    ):
        assert (await conversation.cut(1.0, "One two three.")).rstrip() == "One two"


async def test_group_01_no_word_is_shown_before_it_sounds(
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


async def test_group_01_a_reply_that_is_cut_at_once_is_in_the_history(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """The first word is sent with the first audio."""
    async with talking(make_voice(served)) as conversation:
        for _ in range(3):
            spoken = await undisturbed(partial(conversation.cut, 0.08, COUNTING))
            assert spoken.split() == ["One,"]


async def test_group_01_words_behind_a_stall_wait_for_their_sound(
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


# 2: no transcript although aligned transcripts are on (#6493, #3667).


async def test_group_02_a_server_without_words_drops_no_turn(
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


# 3: words run together (#6848, js#2066).


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
async def test_group_03_the_words_joined_are_the_text(
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


async def test_group_03_a_reply_longer_than_the_server_takes_at_once_is_whole(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """The reply sends its text as the server speaks."""
    server = await start_server(max_text_chars=60)
    text = "It goes on and on. " * 12 + "😊 " * 9 + "It ends."
    async with make_voice(server, speed=4.0).stream() as stream:
        stream.push_text(text)
        stream.end_input()
        assert "".join(await pieces_of(stream)) == text


# 4: the engine's normalized text leaks into the history (pc#4424, #3330).


async def test_group_04_the_history_has_the_original_spelling(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """Numbers, abbreviations and symbols stay as the LLM wrote them, whole or interrupted."""
    text = "Dr. Smith owes $25 & 3.5% of 1,000 by 8 p.m. on 4/7."
    voice = make_voice(served, speed=2.0)
    async with talking(voice, tts_text_transforms=None) as conversation:
        assert await conversation.spoken(*tokens(text)) == text
        spoken = await undisturbed(partial(conversation.cut, 1.0, *tokens(text)))
        assert text.startswith(spoken.rstrip())
        assert spoken.startswith("Dr. Smith owes $25")
