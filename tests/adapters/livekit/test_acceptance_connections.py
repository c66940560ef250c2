"""Problems with connections that LiveKit's users have reported, group by group, on real sessions.

Group numbers are those of the plugin's acceptance list; issue numbers are those of livekit/agents.
"""

import asyncio

import pytest
from livekit.agents import APIConnectOptions, tts
from livekit.agents.voice.agent_session import SessionConnectOptions

from testbed.listening import pcm_of, words_of
from testbed.livekit_audio import MakeVoice, tokens
from testbed.livekit_conversation import count, ended, heard, talking
from testbed.proxy import routing
from testbed.scripted_server import Script, ScriptedServer, Step
from testbed.server_process import ServerProcess
from testbed.servers import StartServer, close_sockets, metric_value, silent, until_metric
from testbed.waiting import undisturbed, until
from voiceagent_tts.config import Settings
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.errors import EngineError, ErrorCode, OverloadedError
from voiceagent_tts.server.serve import RunningServer, running

COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."
FIVE = "One, two, three, four, five."


# 5: retries repeat or lose words (#5242, #4409, #4620, #4135).


async def test_group_05_a_server_lost_before_sound_is_retried_once(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """LiveKit's retry speaks the whole text once."""
    server = await start_server()
    whole_s = len(await pcm_of(server.websocket_url, FIVE)) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ
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
    whole_s = len(await pcm_of(server.websocket_url, COUNTING)) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ
    async with talking(make_voice(server, max_lead_s=0.5)) as conversation:
        handle = conversation.reply(*tokens(COUNTING))
        await conversation.played(1.0)
        close_sockets(server)
        assert await ended(handle) == COUNTING
        assert not conversation.errors
        assert abs(conversation.loudspeaker.played_s - whole_s) < 0.8  # one word is started again


async def test_group_05_a_reply_resumes_as_long_as_the_listener_has_audio_left(
    server: RunningServer, make_voice: MakeVoice
) -> None:
    """LiveKit's retries count only from the moment when nothing is left to hear."""
    text = f"{COUNTING} {COUNTING}"
    async with (
        routing(server.websocket_url) as (line, url),
        talking(make_voice(url, max_lead_s=2.5)) as conversation,
    ):
        handle = conversation.reply(text)
        await conversation.played(0.3)
        line.go_down()
        await conversation.played(1.9)  # three retries, 0.1 s apart, would be long over
        line.come_up()
        assert await ended(handle) == text
        assert not conversation.errors


async def test_group_05_without_retries_a_reply_ends_where_it_breaks_off(
    server: RunningServer, make_voice: MakeVoice
) -> None:
    """With `max_retry=0` nothing is tried again, as LiveKit has it."""
    once = SessionConnectOptions(tts_conn_options=APIConnectOptions(max_retry=0, timeout=5.0))
    voice = make_voice(server, max_lead_s=0.5)
    async with talking(voice, conn_options=once) as conversation:
        handle = conversation.reply(COUNTING)
        await conversation.played(0.5)
        close_sockets(server)
        spoken = await ended(handle)
        assert spoken and spoken != COUNTING and COUNTING.startswith(spoken)
        assert [error.recoverable for error in conversation.errors] == [False]


def _dies(after_s: float, *, samples: int = 0, words_ms: tuple[int, ...] = ()) -> Script:
    """A context whose engine dies, and what it sends before."""
    steps = (Step(0.0, samples=samples, words_ms=words_ms),)
    return Script(steps, end_s=after_s, failure=EngineError("the engine process has ended"))


_RESTARTING = Script(
    (), end_s=0.1, failure=OverloadedError("it restarts", code=ErrorCode.MODEL_NOT_READY)
)


@pytest.mark.parametrize(
    "first",
    [
        [_dies(0.0), _RESTARTING, _dies(0.02)],
        [_dies(0.02, words_ms=(0, 200)), _RESTARTING],
        [_dies(0.1, samples=480)] * 3,
        [_dies(0.0), _dies(0.1, samples=480), _RESTARTING, _dies(0.1, samples=480)],
        [_dies(0.1, samples=7_200, words_ms=(0,))] * 2 + [_RESTARTING] * 2,
    ],
    ids=["before sound", "words alone", "in one word", "before and in it", "after each word"],
)
async def test_group_05_a_reply_is_whole_after_as_many_deaths_as_livekit_retries(
    make_voice: MakeVoice, first: list[Script]
) -> None:
    """Each failed attempt counts once, whatever it had sent, and none of those that spoke on."""
    whole = Script((Step(0.0, samples=14_400, words_ms=(0, 200, 400)),), end_s=0.0)
    async with (
        ScriptedServer(whole, first).running() as server,
        talking(make_voice(server.addresses["ws"])) as conversation,
    ):
        assert await conversation.spoken("One two three.") == "One two three."
        assert all(error.recoverable for error in conversation.errors)


async def test_group_05_an_engine_that_dies_at_a_word_ends_the_reply(
    make_voice: MakeVoice,
) -> None:
    """Sound before the word, as the silence of a break, is no progress: attempts are limited."""
    async with (
        ScriptedServer(_dies(0.02, samples=480)).running() as server,
        talking(make_voice(server.addresses["ws"])) as conversation,
    ):
        await conversation.spoken("Internationally.")
        assert [error.recoverable for error in conversation.errors] == [False]


async def test_group_05_a_reply_goes_on_past_a_context_that_accepts_no_more(
    make_voice: MakeVoice,
) -> None:
    """One at the limit of its audio refuses text, and then sends what it has."""
    rest = Script((Step(0.0, samples=9_600, words_ms=(0, 200)),), end_s=0.0)
    first = Script((Step(0.0, samples=14_400, words_ms=(0, 200, 400)),), end_s=0.5, closed_s=0.1)
    async with (
        ScriptedServer(rest, [first]).running() as server,
        talking(make_voice(server.addresses["ws"])) as conversation,
    ):
        go_on = asyncio.Event()
        handle = conversation.reply("One two three. ", go_on, "Four five.")
        await conversation.played(0.15)
        go_on.set()
        assert await ended(handle) == "One two three. Four five."
        assert not conversation.errors


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

    words = await undisturbed(difference, holds=lambda words: -1 <= words <= 0)
    assert -1 <= words <= 0


async def test_group_05_a_turn_that_begins_while_the_server_is_down_is_spoken(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """Once, by the server that is started again while LiveKit's policy still retries."""
    server = await start_server()
    policy = APIConnectOptions(max_retry=100, retry_interval=0.1, timeout=5.0)
    options = SessionConnectOptions(tts_conn_options=policy)
    async with talking(make_voice(server), conn_options=options) as conversation:
        server.uvicorn_server.should_exit = True
        await server.serving
        handle = conversation.reply(FIVE)
        await until(lambda: bool(conversation.errors), "the first attempt has failed")
        async with running(Settings(port=int(server.url.rpartition(":")[2]))) as again:
            assert await ended(handle) == FIVE
            assert metric_value(again, "tts_contexts_total", reason="complete") == 1
        assert all(error.recoverable for error in conversation.errors)


async def test_group_05_a_turn_whose_server_stays_down_fails_once(
    make_voice: MakeVoice, free_port: int
) -> None:
    """After all retries, with nothing in the history; a later turn is spoken."""
    voice = make_voice(f"ws://127.0.0.1:{free_port}")
    async with talking(voice) as conversation:
        assert await conversation.spoken(FIVE) == ""
        assert [error.recoverable for error in conversation.errors] == [True, True, True, False]
        assert conversation.history == []
        async with running(Settings(port=free_port)):
            assert await conversation.spoken("Yes, I can.") == "Yes, I can."
        assert len(conversation.errors) == 4


async def test_group_05_a_fallback_takes_over_from_a_server_that_is_down(
    served: ServerProcess, make_voice: MakeVoice, free_port: int
) -> None:
    """It speaks the whole reply, and the history has what was heard of it."""
    words = await words_of(served.websocket_url, COUNTING, voice="default", language="en")
    dead, alive = make_voice(f"ws://127.0.0.1:{free_port}"), make_voice(served)
    both = tts.FallbackAdapter([dead, alive], max_retry_per_tts=0)
    async with talking(both) as conversation:
        assert await conversation.spoken(FIVE) == FIVE
        assert conversation.loudspeaker.played_s > 1.0
        spoken = await conversation.cut(1.25, *tokens(COUNTING))
        assert count(words, spoken) == heard(words, conversation.loudspeaker.played_s)
        assert not conversation.errors


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
        assert metric_value(server, "tts_ws_accepted_total") == 1


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
        assert metric_value(server, "tts_ws_accepted_total") == 1
        assert not conversation.errors
