"""Problems that LiveKit's users have reported, one section per group of issues, on real sessions.

Group numbers are those of the plugin's acceptance list; issue numbers are those of livekit/agents.
"""

import asyncio
from functools import partial
from typing import get_args

import aiohttp
import pytest
from livekit.agents import APIConnectOptions, APIError, APIStatusError, tts
from livekit.agents.metrics import TTSMetrics
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT, TimedString

from testbed.listening import words_of
from testbed.livekit_audio import MakeVoice, seconds, tokens
from testbed.livekit_conversation import (
    count,
    ended,
    heard,
    talking,
)
from testbed.proxy import routing
from testbed.server_process import ServerProcess
from testbed.servers import StartServer, silent
from testbed.waiting import PATIENCE_S, undisturbed, until
from voiceagent_tts.client import TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, PlayoutClock
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import SampleRate
from voiceagent_tts.server.serve import RunningServer, running

COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."
FIVE = "One, two, three, four, five."
ONE_ATTEMPT = APIConnectOptions(max_retry=0, timeout=5.0)
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


async def say(voice: tts.TTS, *texts: str) -> list[tts.SynthesizedAudio]:
    """All audio of one stream."""
    async with voice.stream(conn_options=ONE_ATTEMPT) as stream:
        for text in texts:
            stream.push_text(text)
        stream.end_input()
        return [event async for event in stream]


def pcm(events: list[tts.SynthesizedAudio]) -> bytes:
    """The PCM of a stream."""
    return b"".join(bytes(event.frame.data) for event in events)


async def pcm_of(server: RunningServer, text: str, voice: str = "default") -> bytes:
    """The PCM of a text from the server, without LiveKit."""
    async with TTSClient(server.websocket_url) as client:
        events = client.say(text, voice=voice, language="en", max_lead_s=0.0)
        return b"".join([event.pcm async for event in events if isinstance(event, ClientAudio)])


async def metrics_of(server: RunningServer) -> dict[str, float]:
    """The values of `/metrics`, without labels."""
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    samples = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in samples}


async def until_metric(server: RunningServer, name: str, value: float) -> None:
    """Wait until `/metrics` shows `value`."""
    async with asyncio.timeout(PATIENCE_S):
        while (await metrics_of(server))[name] != value:
            await asyncio.sleep(0.02)


# 1: the history has words that were not heard (#2607, #2580).


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

    async def cut_often(language: str) -> list[int]:
        text, cuts = CUTS[language]
        words = await words_of(server.websocket_url, text, voice="default", language=language)
        middles_s = [
            (words[index].start_sample + words[index + 1].start_sample) / 2 / SAMPLE_RATE_HZ
            for index in cuts
        ]
        async with talking(make_voice(server, language=language)) as conversation:

            async def cut(at_s: float) -> int:
                spoken = await conversation.cut(at_s, *tokens(text))
                assert text.startswith(spoken.rstrip()) and spoken
                return count(words, spoken) - heard(words, conversation.loudspeaker.played_s)

            return [await undisturbed(partial(cut, at_s)) for at_s in middles_s]

    async with asyncio.TaskGroup() as group:
        cutting = [group.create_task(cut_often(language)) for language in CUTS]
    differences = sum((task.result() for task in cutting), [])
    assert all(abs(difference) <= 1 for difference in differences), differences
    assert sum(difference > 0 for difference in differences) <= 1, differences


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


# 5: retries repeat or lose words (#5242, #4409, #4620, #4135).


async def test_group_05_a_server_lost_before_sound_is_retried_once(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """LiveKit's retry speaks the whole text once."""
    server = await start_server()
    whole_s = len(await pcm_of(server, FIVE)) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ
    async with talking(make_voice(server)) as conversation:
        with silent(server):
            handle = conversation.reply(FIVE)
            await until_metric(server, "tts_contexts_active", 1)
            close_sockets(server)
        assert await ended(handle) == FIVE
        (error,) = conversation.errors
        assert error.recoverable
        assert conversation.loudspeaker.played_s == pytest.approx(whole_s, abs=0.3)


async def test_group_05_a_server_lost_in_mid_reply_goes_on_where_it_broke_off(
    server: RunningServer, make_voice: MakeVoice
) -> None:
    """Each word is heard once and committed once, and no error is reported."""
    whole_s = len(await pcm_of(server, COUNTING)) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ
    async with talking(make_voice(server, max_lead_s=0.5)) as conversation:
        handle = conversation.reply(*tokens(COUNTING))
        await conversation.played(1.0)
        close_sockets(server)
        assert await ended(handle) == COUNTING
        assert not conversation.errors
        assert abs(conversation.loudspeaker.played_s - whole_s) < 0.8  # one word is started again


async def test_group_05_audio_whose_words_are_not_known_yet_is_not_repeated(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """If words arrive just ahead of playback, the reply resumes near the end of its audio."""
    server = await start_server(throttle={"without_words": True}, max_lead_s=2.5, aligner="online")
    whole_s = len(await pcm_of(server, COUNTING)) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ
    async with talking(make_voice(server)) as conversation:
        handle = conversation.reply(*tokens(COUNTING))
        await conversation.played(1.0)
        close_sockets(server)
        assert await ended(handle) == COUNTING
        assert -0.8 < conversation.loudspeaker.played_s - whole_s < 1.6


async def test_group_05_an_engine_that_dies_again_and_again_says_it_all(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """The reply resumes as long as each attempt speaks another word."""
    server = await start_server(throttle={"rtf": 0.5, "crash_after_s": 1.5})
    async with talking(make_voice(server)) as conversation:
        assert await conversation.spoken(COUNTING) == COUNTING
        assert not conversation.errors
        assert (await metrics_of(server))["tts_worker_restarts"] >= 2


async def test_group_05_what_a_dead_server_never_spoke_is_not_committed(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """A reply that cannot resume ends with the words that were heard."""

    async def difference() -> int:
        server = await start_server()
        words = await words_of(server.websocket_url, COUNTING, voice="default", language="en")
        async with talking(make_voice(server, max_lead_s=0.5)) as conversation:
            handle = conversation.reply(COUNTING)
            await conversation.played(1.2)
            server.uvicorn_server.should_exit = True
            close_sockets(server)
            spoken = await ended(handle)
            assert spoken and COUNTING.startswith(spoken.rstrip())
            assert [error.recoverable for error in conversation.errors] == [False]
            return count(words, spoken) - heard(words, conversation.loudspeaker.played_s)

    assert -1 <= await undisturbed(difference) <= 0


def close_sockets(server: RunningServer) -> None:
    """Close every socket with an internal error, as a failing server does."""
    for session in list(server.state.sessions):
        session.close(1011, "as a failing server does")


# 6: stale sockets, or a handshake for every turn (#5681, #6390, #2281, #2630, #6078).


async def test_group_06_every_turn_finds_the_socket_open(
    server: RunningServer, make_voice: MakeVoice
) -> None:
    """Every reply finds an open socket, also the first one and the one after a barge-in."""
    voice = make_voice(server)
    async with talking(voice) as conversation:
        # The server counts a connection before the client knows that it may use it.
        await until(lambda: voice.is_connected, "the session has connected")
        await conversation.spoken("Yes.")
        await conversation.cut(0.5, COUNTING)
        await conversation.spoken("No.")
        assert len(conversation.metrics) >= 2
        assert all(metric.connection_reused for metric in conversation.metrics)
        assert (await metrics_of(server))["tts_ws_accepted_total"] == 1


async def test_group_06_a_restarted_server_is_found(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """The plugin reconnects between replies, so the next reply finds an open socket."""
    server = await start_server()
    voice = make_voice(server)
    async with talking(voice) as conversation:
        await conversation.spoken("Yes.")
        server.uvicorn_server.should_exit = True
        await server.serving
        async with running(Settings(port=int(server.url.rpartition(":")[2]))) as again:
            await until_metric(again, "tts_ws_connections", 1)
            await until(lambda: voice.is_connected, "the plugin may use the new socket")
            assert await conversation.spoken("Yes, I can.") == "Yes, I can."
            assert conversation.metrics[-1].connection_reused
            assert not conversation.errors


async def test_group_06_an_idle_connection_that_nat_forgot_is_replaced(
    server: RunningServer, make_voice: MakeVoice
) -> None:
    """The heartbeat finds the dead connection before the next reply."""
    async with routing(server.websocket_url) as (router, url):
        async with talking(make_voice(url, heartbeat_s=0.4)) as conversation:
            await conversation.spoken("Yes.")
            router.forget()
            await until(lambda: router.accepted == 2, "the plugin connects again")
            await until_metric(server, "tts_ws_accepted_total", 2)
            assert await conversation.spoken("Yes, I can.") == "Yes, I can."
            assert not conversation.errors


async def test_group_06_a_turn_on_a_connection_that_nat_forgot_speaks(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """A ping goes with the first message, so the reply does not wait ten seconds for a timeout."""
    async with routing(served.websocket_url) as (router, url):
        async with talking(make_voice(url)) as conversation:
            await conversation.spoken("Yes.")
            router.forget()
            assert await conversation.spoken("Yes, I can.") == "Yes, I can."
            assert [error.recoverable for error in conversation.errors] == [True]


async def test_group_06_a_draining_server_finishes_and_the_next_takes_over(
    server: RunningServer, make_voice: MakeVoice
) -> None:
    """A reply ends on the draining socket; the next reply uses a new socket."""
    async with talking(make_voice(server)) as conversation:
        handle = conversation.reply(FIVE)
        await conversation.played(0.5)
        for session in list(server.state.sessions):
            session.drain(30_000)
        await until_metric(server, "tts_ws_accepted_total", 2)
        assert await ended(handle) == FIVE
        assert await conversation.spoken("Yes.") == "Yes."
        await until_metric(server, "tts_ws_connections", 1)
        assert not conversation.errors


# 7: the server continues after an interruption (#5844, #5845, js#1985, #3859).


async def test_group_07_thirty_interruptions_leave_one_socket_and_no_context(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """An interruption frees the row at once, and the next reply starts at once."""
    server = await start_server(throttle={"rtf": 0.5})
    async with talking(make_voice(server)) as conversation:
        for number in range(30):
            await conversation.cut(0.0 if number % 3 else 0.1, COUNTING)
        await until_metric(server, "tts_contexts_active", 0)
        await until_metric(server, "tts_slots_used", 0)
        assert await conversation.spoken("Yes.") == "Yes."
        assert (await metrics_of(server))["tts_ws_accepted_total"] == 1
        assert not conversation.errors


# 8: crackle, or voices like chipmunks (#1996, #4244, #4777, #2277).


async def test_group_08_the_samples_are_the_servers(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """No sample is resampled, lost or doubled on the way to the loudspeaker."""
    async with talking(make_voice(await start_server())) as conversation:
        await conversation.spoken(FIVE)
        played = bytes(conversation.loudspeaker.played)
    # espeak speaks a text identically only as the first text of its process.
    assert played == await pcm_of(await start_server(), FIVE)


async def test_group_08_other_rates_last_as_long(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """The declared rate is the true one, also behind a fallback that resamples."""

    async def duration_s(voice: tts.TTS, rate_hz: int) -> float:
        events = await say(voice, "I can do that.")
        assert {event.frame.sample_rate for event in events} == {rate_hz}
        return sum(event.frame.duration for event in events)

    expected_s = await duration_s(make_voice(served), 24_000)
    for rate_hz in get_args(SampleRate):
        voice = make_voice(served, sample_rate=rate_hz)
        assert await duration_s(voice, rate_hz) == pytest.approx(expected_s, abs=0.02)
    both = tts.FallbackAdapter([make_voice(served), make_voice(served, sample_rate=48_000)])
    assert await duration_s(both, 48_000) == pytest.approx(expected_s, abs=0.05)
    await both.aclose()


# 9: the output drops the first audio (#5158, #3161).


async def test_group_09_silence_ahead_is_counted(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """Word times account for silence before the reply."""
    (plain,) = _times(await say(make_voice(served), "Hello."))
    events = await say(make_voice(served, leading_silence_ms=400), "Hello.")
    assert pcm(events).startswith(bytes(SAMPLE_RATE_HZ * 4 // 10 * BYTES_PER_SAMPLE))
    (padded,) = _times(events)
    assert seconds(padded.start_time) > seconds(plain.start_time)
    assert padded.end_time == pytest.approx(seconds(plain.end_time) + 0.4, abs=0.05)


def _times(events: list[tts.SynthesizedAudio]) -> list[TimedString]:
    return [
        piece
        for event in events
        for piece in event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])
    ]


# 10: "no audio frames were pushed" (#4171, #3306, js#1454).


@pytest.mark.parametrize("text", ["...", "🙂", "*", "\u200b"])
async def test_group_10_text_without_sound_is_no_failure(
    served: ServerProcess, make_voice: MakeVoice, text: str
) -> None:
    """A reply without speakable text is a short silence, and is committed."""
    async with talking(make_voice(served), tts_text_transforms=None) as conversation:
        assert await conversation.spoken(text) == text
        assert await conversation.spoken("Yes.") == "Yes."
        assert not conversation.errors


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
async def test_group_10_blank_text_needs_no_server(make_voice: MakeVoice, text: str) -> None:
    """Blank text opens no connection."""
    voice = make_voice("ws://127.0.0.1:9/v1/tts/ws")
    assert await say(voice, text) == []
    assert await say(voice) == []


# 11: short replies wait for more text (#3798, #2713, #2892).


async def test_group_11_a_sentence_is_spoken_before_the_next_token(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """`Hi!` is spoken while the LLM is still thinking, and the metrics have the time of sending.

    LiveKit's own markdown filter holds the `!` back until the next token arrives.
    """
    go_on = asyncio.Event()
    async with talking(make_voice(served), tts_text_transforms=None) as conversation:
        handle = conversation.reply("Hi!", go_on, " There.")
        await conversation.played(0.1)
        go_on.set()
        assert await ended(handle) == "Hi! There."
        (message,) = [item for item in handle.chat_items if item.type == "message"]
        assert message.metrics.get("llm_node_ttfs", 0) > 0
        assert message.metrics.get("tts_node_ttfb", 0) > 0


# 12: wrong or missing time to first byte (#6300, #1431, #2885).


async def test_group_12_time_to_first_byte_is_the_wires(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """TTFB matches the wire: it starts when the text is sent, not when the stream is made."""
    server = await start_server(throttle={"first_audio_s": 0.4})

    async def first_audio_s() -> float:
        return (await metrics_of(server))["tts_time_to_first_audio_seconds_sum"]

    async def difference_s() -> float:
        go_on, before_s = asyncio.Event(), await first_audio_s()
        voice = make_voice(server)
        async with talking(voice) as conversation:
            await until(lambda: voice.is_connected, "the session has connected")
            handle = conversation.reply(" ", go_on, "Yes.")
            await asyncio.sleep(0.3)  # the LLM's time, which is not part of the time to first byte
            go_on.set()
            await ended(handle)
            (metric,) = conversation.metrics
        assert metric.connection_reused and metric.acquire_time == 0.0
        assert metric.characters_count == len(" Yes.")
        await until_metric(server, "tts_ws_connections", 0)
        return metric.ttfb - (await first_audio_s() - before_s)

    assert abs(await undisturbed(difference_s)) < 0.1


async def test_group_12_a_cold_turn_reports_how_long_it_took_to_connect(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """`acquire_time` and `connection_reused` distinguish a cold reply from a warm one."""
    voice = make_voice(served)
    reports: list[TTSMetrics] = []
    voice.on("metrics_collected", reports.append)
    await say(voice, "Yes.")
    await say(voice, "Yes.")
    assert [report.connection_reused for report in reports] == [False, True]
    assert reports[0].acquire_time > 0 == reports[1].acquire_time


# 13: bursts slower than real time (#3433, #3438, #3604).


async def test_group_13_sixty_four_replies_at_once_have_no_gap(
    server: RunningServer, make_voice: MakeVoice
) -> None:
    """All replies share one socket, and the audio of each one has no gap."""
    voice = make_voice(server)
    loop = asyncio.get_running_loop()

    async def watch(stalls_s: list[float]) -> None:
        while True:
            started = loop.time()
            await asyncio.sleep(0.005)
            stalls_s.append(loop.time() - started - 0.005)

    async def underrun_s() -> float:
        clock = PlayoutClock()
        async with voice.stream(conn_options=ONE_ATTEMPT) as stream:
            stream.push_text("Yes, of course.")
            stream.end_input()
            async for event in stream:
                clock.send(event.frame.samples_per_channel, loop.time())
        assert clock.sent_samples
        return clock.underrun_s

    async def listen() -> tuple[float, float]:
        stalls_s = [0.0]
        watching = asyncio.create_task(watch(stalls_s))
        underruns_s = await asyncio.gather(*(underrun_s() for _ in range(64)))
        watching.cancel()
        return max(underruns_s), max(stalls_s)

    longest_underrun_s, longest_stall_s = await undisturbed(listen)
    assert longest_underrun_s <= 0.02 + longest_stall_s


async def test_group_13_what_cannot_be_spoken_is_refused_before_any_sound(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """Replies beyond the limit get a retryable error; the others are spoken."""
    server = await start_server(max_contexts=4, throttle={"rtf": 0.5})
    voice = make_voice(server)
    results = await asyncio.gather(
        *(say(voice, COUNTING) for _ in range(6)), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 2
    for error in refused:
        assert isinstance(error, APIStatusError)
        assert error.status_code == 429 and error.retryable


# 14: one bad turn kills the session (#3500, js#2399, #6152).


async def test_group_14_a_fallback_takes_over_before_any_sound(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """A fallback leaves an overloaded server before any audio is played."""
    full, free = await start_server(max_contexts=1), await start_server()
    first = make_voice(full)
    async with first.stream() as holding:
        holding.push_text("I keep ")
        await until_metric(full, "tts_contexts_active", 1)
        both = tts.FallbackAdapter([first, make_voice(free)], max_retry_per_tts=0)
        assert both.capabilities.aligned_transcript
        async with talking(both) as conversation:
            assert await conversation.spoken(FIVE) == FIVE
        assert (await metrics_of(free))["tts_ws_accepted_total"] == 1


async def test_group_14_a_bad_voice_fails_its_turn_only(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """A request that cannot succeed is not retried, and the session continues."""
    voice = make_voice(served, voice="nobody")
    async with talking(voice) as conversation:
        assert await conversation.spoken("Yes.") == ""
        (error,) = conversation.errors
        assert isinstance(error.error, APIStatusError)
        assert error.error.status_code == 400 and not error.recoverable
        voice.update_options(voice="default")
        assert await conversation.spoken("Yes.") == "Yes."


# 15: a new voice starts a turn late, or cuts the old one (#3500, #4412).


async def test_group_15_a_new_voice_speaks_from_the_next_reply_on(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """A reply that has started ends in the old voice."""
    voice = make_voice(await start_server())
    async with talking(voice) as conversation:
        handle = conversation.reply(FIVE)
        await conversation.played(0.2)
        voice.update_options(voice="en-gb+f3")
        await ended(handle)
        first = bytes(conversation.loudspeaker.played)
        await conversation.spoken(FIVE)
        second = bytes(conversation.loudspeaker.played)
    reference = await start_server()
    assert first == await pcm_of(reference, FIVE)
    assert second == await pcm_of(reference, FIVE, "en-gb+f3")


# 16: plugins for other services, in test_stock_plugins.py.


# 17: a pause before the first audio (#5038), and wasted audio (#2981).


async def test_group_17_a_pause_before_the_first_sound_loses_nothing(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """The plugin does not see the pause; the reply waits and is complete."""
    server = await start_server()
    async with talking(make_voice(server)) as conversation:
        with silent(server):
            handle = conversation.reply(FIVE)
            await until_metric(server, "tts_contexts_active", 1)
            output = conversation.session.output.audio
            assert output is not None
            output.pause()
        await until_metric(server, "tts_contexts_active", 0)
        assert conversation.loudspeaker.played_s == 0
        output.resume()
        assert await ended(handle) == FIVE


async def test_group_17_a_short_lead_wastes_little_audio(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """With a short lead, an interruption wastes little audio, however long the text is."""
    server = await start_server()
    async with talking(make_voice(server, max_lead_s=0.5)) as conversation:
        await conversation.cut(0.5, COUNTING * 5)
        await until_metric(server, "tts_contexts_active", 0)
        assert (await metrics_of(server))["tts_audio_discarded_seconds_total"] < 3.0


async def test_errors_are_those_of_livekit(served: ServerProcess, make_voice: MakeVoice) -> None:
    """A stream raises only `APIError`s, because any other error would end the session."""
    for options in ({"voice": "nobody"}, {"language": "xx"}, {"speed": 9.0}):
        with pytest.raises(APIError) as raised:
            await say(make_voice(served, **options), "Yes.")
        assert not raised.value.retryable
