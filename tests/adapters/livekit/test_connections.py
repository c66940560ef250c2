"""What a LiveKit reply survives, what it costs when it does not, and the one socket of a plugin.

Issue numbers are those of livekit/agents.
"""

import asyncio
import gc
import time
from dataclasses import replace
from itertools import pairwise
from unittest import mock

import aiohttp
import pytest
from livekit.agents import (
    APIConnectionError,
    APIConnectOptions,
    APIError,
    APIStatusError,
    APITimeoutError,
    tts,
)
from livekit.agents.tokenize import _basic_hyphenator
from livekit.agents.tts import AudioEmitter, SynthesizedAudio
from livekit.agents.utils import aio
from livekit.agents.voice.agent_session import SessionConnectOptions

from testbed.listening import words_of
from testbed.livekit_conversation import MakeVoice, count, ended, heard, talking, tokens
from testbed.proxy import Router, black_hole, routing
from testbed.scripted_server import Script, ScriptedServer, Step, whole
from testbed.scripted_time import run_scripted
from testbed.server_process import ServerProcess
from testbed.servers import StartServer, close_sockets, metric_value, until_metric
from testbed.waiting import PATIENCE_S, undisturbed, until
from voiceagent_tts.adapters.livekit import TTS
from voiceagent_tts.adapters.livekit.playout import Playout
from voiceagent_tts.adapters.livekit.reply import LiveKitReply, ReplyOptions
from voiceagent_tts.adapters.reply import Choices, Mark
from voiceagent_tts.client import ClientSocket
from voiceagent_tts.client.transport import connect_websocket
from voiceagent_tts.config import Settings
from voiceagent_tts.core import SAMPLE_RATE_HZ, PlayoutClock
from voiceagent_tts.errors import EngineError, ErrorCode, InvalidRequestError, OverloadedError
from voiceagent_tts.protocol.client_connection import VoiceOptions
from voiceagent_tts.server.serve import RunningServer, running

COUNTING = "One, two, three, four, five. Six, seven, eight, nine, ten."
TEXT = "a b c d e f"
BROKEN_OFF = whole(3, end_s=600.0)
"""The first three words, and then nothing."""
SILENT = Script((), end_s=600.0)


def recoverable(errors: list[tts.TTSError]) -> list[bool]:
    """Whether LiveKit goes on after each error."""
    return [error.recoverable for error in errors]


# A reply that breaks off (#5242, #4409, #4620, #4135).


@pytest.mark.parametrize(
    ("first", "played_s", "rest", "errors"),
    [(SILENT, None, TEXT, [True]), (BROKEN_OFF, 0.3, "d e f", [])],
    ids=["before sound", "in mid-reply"],
)
async def test_a_reply_whose_server_is_lost_is_spoken_once(
    make_voice: MakeVoice, first: Script, played_s: float | None, rest: str, errors: list[bool]
) -> None:
    """LiveKit's retry speaks one without sound; one that is heard goes on where it broke off."""
    async with (
        ScriptedServer(whole(6), [first]).running() as server,
        talking(make_voice(server.addresses["ws"])) as conversation,
    ):
        handle = conversation.reply(TEXT)
        if played_s is None:
            await until(lambda: server.texts == [TEXT], "the text has arrived")
        else:
            await conversation.played(played_s)
        await server.drop_connections()
        assert await ended(handle) == TEXT
        assert server.texts[-1].strip() == rest
        assert recoverable(conversation.errors) == errors


async def test_a_real_server_that_is_lost_in_mid_reply(
    server: RunningServer, make_voice: MakeVoice
) -> None:
    """Each word is heard once and committed once, and no error is reported."""
    words = await words_of(server.websocket_url, COUNTING, voice="default", language="en")
    async with talking(make_voice(server, max_lead_s=0.5)) as conversation:
        handle = conversation.reply(*tokens(COUNTING))
        await conversation.played(1.0)
        close_sockets(server)
        assert await ended(handle) == COUNTING
        assert not conversation.errors
        last_s = words[-1].start_sample / SAMPLE_RATE_HZ
        assert last_s < conversation.loudspeaker.played_s < last_s + 1.6  # one is started again


async def attempts_at_s(retry_interval_s: float) -> list[float]:
    """When a reply connects: at its start, and after its server has gone for good."""
    loop, connected_at_s = asyncio.get_running_loop(), list[float]()
    policy = APIConnectOptions(max_retry=2, retry_interval=retry_interval_s)
    lost = Script(
        (Step(0.0, samples=SAMPLE_RATE_HZ, words_ms=(0,)),), end_s=0.2, failure=EngineError("died")
    )
    async with ScriptedServer(lost).running() as server:
        socket = await ClientSocket.over(await connect_websocket(server.addresses["ws"], {}))

        async def connect() -> ClientSocket:
            connected_at_s.append(loop.time())
            if len(connected_at_s) > 1:
                raise APIConnectionError("no server")
            return socket

        emitter = AudioEmitter(label="test", dst_ch=aio.Chan[SynthesizedAudio]())
        choices = Choices(
            ReplyOptions({}, SAMPLE_RATE_HZ, leading_silence_ms=0, output_latency_s=0.0)
        )
        reply = LiveKitReply(choices, choices.current, policy, emitter, connect, in_segment=True)
        reply.send("one two three")
        reply.send(Mark.END)
        with mock.patch.object(time, "monotonic", loop.time), pytest.raises(APIError):
            await reply.speak()
        await socket.aclose()
    return connected_at_s


@pytest.mark.parametrize("retry_interval_s", [0.1, 0.7])
def test_attempts_are_as_far_apart_as_livekits_policy_says(retry_interval_s: float) -> None:
    """The first one follows at once; while a second of audio is left to hear, none counts."""
    start, first, *others = run_scripted(attempts_at_s(retry_interval_s))
    assert first == pytest.approx(start + 0.2, abs=0.02)
    gaps_s = [later - earlier for earlier, later in pairwise((first, *others))]
    assert gaps_s == pytest.approx([retry_interval_s] * len(gaps_s), abs=0.02)
    after = [at for at in others if at > start + 1.0]
    assert len(after) == 3, "the first attempt that counts, and two retries"


@pytest.mark.parametrize("max_retry", [0, 3])
async def test_a_reply_that_cannot_resume_is_committed_as_far_as_it_was_heard(
    make_voice: MakeVoice, max_retry: int
) -> None:
    """With one error; LiveKit's `max_retry=0` tries nothing again."""
    policy = APIConnectOptions(max_retry=max_retry, retry_interval=0.1, timeout=5.0)
    options = SessionConnectOptions(tts_conn_options=policy)
    async with (
        ScriptedServer(whole(6), [BROKEN_OFF]).running() as server,
        routing(server.addresses["ws"]) as (line, url),
        talking(make_voice(url), conn_options=options) as conversation,
    ):
        handle = conversation.reply(TEXT)
        await conversation.played(0.3)
        if max_retry:
            line.go_down()
        else:
            await server.drop_connections()
        assert (await ended(handle)).rstrip() == "a b c"
        assert recoverable(conversation.errors) == [False]


async def test_another_program_on_the_port_of_a_restarting_server_ends_no_reply(
    make_voice: MakeVoice,
) -> None:
    """A reply that is heard goes on when the server is back, and one without sound is retried."""
    async with (
        ScriptedServer(whole(6), [BROKEN_OFF]).running() as server,
        routing(server.addresses["ws"]) as (line, url),
        talking(make_voice(url)) as conversation,
    ):
        handle = conversation.reply(TEXT)
        await conversation.played(0.3)
        line.go_down(404)
        await until(lambda: line.refused > 1, "it is refused")
        line.come_up()
        assert await ended(handle) == TEXT
        assert not conversation.errors
        line.go_down(404)
        handle = conversation.reply(TEXT)
        await until(lambda: bool(conversation.errors), "it is refused")
        line.come_up()
        assert await ended(handle) == TEXT
        assert all(recoverable(conversation.errors))


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
async def test_a_reply_is_whole_after_as_many_deaths_as_livekit_retries(
    make_voice: MakeVoice, first: list[Script]
) -> None:
    """Each failed attempt counts once, whatever it had sent, and none of those that spoke on."""
    async with (
        ScriptedServer(whole(3, word_ms=200), first).running() as server,
        talking(make_voice(server.addresses["ws"])) as conversation,
    ):
        assert await conversation.spoken("One two three.") == "One two three."
        assert all(recoverable(conversation.errors))


@pytest.mark.parametrize(
    "script",
    [_dies(0.02, samples=480), replace(_dies(0.02, samples=480), failure=None, closed_s=0.0)],
    ids=["it dies", "its audio is too long"],
)
async def test_a_context_that_ends_at_a_word_each_time_ends_the_reply(
    make_voice: MakeVoice, script: Script
) -> None:
    """Sound before the word, as the silence of a break, is no progress: attempts are limited."""
    async with (
        ScriptedServer(script).running() as server,
        talking(make_voice(server.addresses["ws"])) as conversation,
    ):
        await conversation.spoken("Internationally.")
        assert recoverable(conversation.errors) == [False]


async def test_a_reply_goes_on_past_a_context_that_accepts_no_more(make_voice: MakeVoice) -> None:
    """One at the limit of its audio refuses text, and then sends what it has."""
    first = replace(whole(3, word_ms=200, end_s=0.5), closed_s=0.1)
    async with (
        ScriptedServer(whole(2, word_ms=200), [first]).running() as server,
        talking(make_voice(server.addresses["ws"])) as conversation,
    ):
        go_on = asyncio.Event()
        handle = conversation.reply("One two three. ", go_on, "Four five.")
        await conversation.played(0.15)
        go_on.set()
        assert await ended(handle) == "One two three. Four five."
        assert not conversation.errors


WRONG_OPTIONS = [{"voice": "nosuch"}, {"text_feeding": "token"}]
"""Such as only a server knows to be wrong."""


@pytest.mark.parametrize("wrong", WRONG_OPTIONS)
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_options_that_the_server_refuses_silence_no_reply(
    served: ServerProcess, make_voice: MakeVoice, wrong: VoiceOptions, is_streamed: bool
) -> None:
    """That is reported once, and all replies are spoken as before."""
    voice = make_voice(served, speed=2.0)
    before = voice.options
    async with talking(voice) as conversation:
        voice.update_options(**wrong)
        for _ in range(2):
            if is_streamed:
                assert await conversation.spoken("Yes, I can.") == "Yes, I can."
            else:
                assert (await voice.synthesize("Yes, I can.").collect()).duration > 0.2
            assert recoverable(conversation.errors) == [True]
            assert voice.options is before
        voice.update_options(voice="nova")
        assert await conversation.spoken("Yes.") == "Yes."
        assert voice.options.spoken.get("voice") == "nova" and len(conversation.errors) == 1


async def test_an_unexpected_error_ends_a_reply_and_no_more(
    served: ServerProcess, make_voice: MakeVoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an error of LiveKit, which commits what was heard; it does not quote what is spoken."""
    voice = make_voice(served)

    def play(*_: object) -> None:
        raise ValueError(COUNTING)

    with monkeypatch.context() as broken:
        broken.setattr(Playout, "play", play)
        with pytest.raises(APIError, match="^unexpected ValueError") as caught:
            await voice.synthesize(COUNTING).collect()
        assert not caught.value.retryable
    assert (await voice.synthesize(COUNTING).collect()).duration > 4


# A reply without any sound (#3500, #6152).


async def test_a_turn_whose_server_stays_down_fails_once(
    make_voice: MakeVoice, free_port: int
) -> None:
    """After all retries, with nothing in the history; the plugin finds a server that starts."""
    voice = make_voice(f"ws://127.0.0.1:{free_port}")
    async with talking(voice) as conversation:
        assert await conversation.spoken(COUNTING) == ""
        assert recoverable(conversation.errors) == [True, True, True, False]
        assert conversation.history == []
        for _ in range(2):
            async with running(Settings(port=free_port)):
                assert await conversation.spoken("Yes, I can.") == "Yes, I can."
        assert len(conversation.errors) == 4


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_retries_in_a_black_hole(make_voice: MakeVoice, is_streamed: bool) -> None:
    """Each attempt reports an error; the last one is marked as unrecoverable."""
    async with black_hole() as url:
        voice, errors = make_voice(url), list[tts.TTSError]()
        voice.on("error", errors.append)
        options = APIConnectOptions(max_retry=3, timeout=0.3, retry_interval=0.0)
        with pytest.raises(APITimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                if is_streamed:
                    async with voice.stream(conn_options=options) as stream:
                        stream.push_text(COUNTING)
                        stream.end_input()
                        await anext(stream)
                else:
                    await voice.synthesize(COUNTING, conn_options=options).collect()
        assert recoverable(errors) == [True, True, True, False]


async def test_a_server_that_is_not_there(make_voice: MakeVoice) -> None:
    """A refused connection is reported at once, so that a fallback can take over."""
    voice = make_voice("ws://127.0.0.1:9")
    with pytest.raises(APIConnectionError, match="no server at 127.0.0.1:9; start one") as raised:
        await voice.synthesize("Yes.", conn_options=APIConnectOptions(max_retry=0)).collect()
    assert not isinstance(raised.value, APITimeoutError) and raised.value.retryable


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_fallback_takes_over_before_any_sound(
    start_server: StartServer, make_voice: MakeVoice, free_port: int, is_full: bool
) -> None:
    """From a server that is down or overloaded; the history has what was heard of it."""
    alive, full = await start_server(), await start_server(max_contexts=1)
    words = await words_of(alive.websocket_url, COUNTING, voice="default", language="en")
    first = make_voice(full) if is_full else make_voice(f"ws://127.0.0.1:{free_port}")
    async with make_voice(full).stream() as holding:
        holding.push_text("I keep ")
        await until_metric(full, "tts_contexts_active", 1)
        both = tts.FallbackAdapter([first, make_voice(alive)], max_retry_per_tts=0)
        async with talking(both) as conversation:
            assert await conversation.spoken("One, two.") == "One, two."
            spoken = await conversation.cut(1.25, *tokens(COUNTING))
            assert count(words, spoken) == heard(words, conversation.loudspeaker.played_s)
            assert not conversation.errors


@pytest.mark.parametrize(
    ("failure", "status", "is_retried"),
    [
        (InvalidRequestError("no such voice", code=ErrorCode.INVALID_VOICE), 400, False),
        (OverloadedError("too many", code=ErrorCode.TOO_MANY_CONTEXTS), 429, True),
        (OverloadedError("no free row", retry_after_ms=50), 503, True),
        (OverloadedError("it restarts", code=ErrorCode.MODEL_NOT_READY), 503, True),
        (EngineError("it has ended"), 500, True),
    ],
)
async def test_an_error_says_whether_another_attempt_helps(
    make_voice: MakeVoice, failure: OverloadedError, status: int, is_retried: bool
) -> None:
    """A request that cannot succeed is not retried, and the session goes on."""
    refused = Script((), end_s=0.0, failure=failure)
    async with (
        ScriptedServer(whole(1), [refused]).running() as server,
        talking(make_voice(server.addresses["ws"])) as conversation,
    ):
        assert await conversation.spoken("Yes.") == ("Yes." if is_retried else "")
        (error,) = conversation.errors
        assert isinstance(error.error, APIStatusError)
        assert (error.error.status_code, error.recoverable) == (status, is_retried)
        assert await conversation.spoken("Yes.") == "Yes."


@pytest.mark.parametrize("is_dead", [True, False], ids=["dead", "silent"])
async def test_a_silent_server_is_noticed_while_the_model_writes(
    make_voice: MakeVoice, *, is_dead: bool
) -> None:
    """Text that goes out is no answer: not of a socket that is dead, nor of one that speaks not."""

    async def write(stream: tts.SynthesizeStream) -> None:
        while True:
            stream.push_text("word ")
            await asyncio.sleep(0.02)

    once = APIConnectOptions(max_retry=0, timeout=0.3)
    async with (
        ScriptedServer(SILENT).running() as server,
        routing(server.addresses["ws"]) as (line, url),
    ):
        voice = make_voice(url)
        await voice.acquire(PATIENCE_S)
        if is_dead:
            line.lose_answers()
        async with voice.stream(conn_options=once) as stream:
            writing = asyncio.create_task(write(stream))
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(APITimeoutError, match="the server is silent"):
                    await anext(stream)
            assert voice.is_connected != is_dead
            writing.cancel()
        await voice.aclose()


async def test_a_busy_agent_does_not_time_out(served: ServerProcess, make_voice: MakeVoice) -> None:
    """Answers that arrive while the agent's code blocks the loop are read before a timeout."""
    voice = make_voice(served)
    await voice.synthesize("Yes.").collect()
    one_attempt = APIConnectOptions(max_retry=0, timeout=2.0)
    async with voice.stream(conn_options=one_attempt) as stream:
        stream.push_text(COUNTING)
        stream.end_input()
        for _ in range(20):
            await asyncio.sleep(0)  # lets the text be sent
        time.sleep(2.5)
        assert sum([event.frame.duration async for event in stream]) > 4


async def test_each_reply_waits_for_its_own_timeout(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """Waiting replies share one connection attempt, and each one keeps its own timeout."""
    router = Router("127.0.0.1", int(served.url.rpartition(":")[2]))
    silent: list[asyncio.StreamReader] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if silent:
            await router.serve(reader, writer)
        else:
            silent.append(reader)
            await reader.read(-1)
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        voice = make_voice(f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        options = [APIConnectOptions(max_retry=0, timeout=seconds) for seconds in (0.3, 10.0)]
        replies = [voice.synthesize("Yes.", conn_options=each).collect() for each in options]
        hasty, patient = await asyncio.gather(*replies, return_exceptions=True)
        assert isinstance(hasty, APITimeoutError)
        assert not isinstance(patient, BaseException) and patient.duration > 0.2
        assert router.accepted == 1
        await voice.aclose()
        await router.aclose()


# The socket (#5681, #6390, #2281, #2630, #6078, #5844, #3859).


async def test_prewarm_connects_and_prepares(server: RunningServer, make_voice: MakeVoice) -> None:
    """It opens the socket before the first reply, once, and loads LiveKit's hyphenator.

    LiveKit loads that with the first word of a process, which would stop that reply.
    """
    _basic_hyphenator._get_hyphenator.cache_clear()
    loaded, voice = _basic_hyphenator._get_hyphenator.cache_info, make_voice(server)
    assert voice.model == "unknown"
    voice.prewarm()
    await until(lambda: voice.is_connected, "the socket is open")
    await until(lambda: loaded().currsize == 1, "the hyphenator is loaded")
    voice.prewarm()
    await voice.synthesize("Yes.").collect()
    assert len(server.state.sessions) == 1
    assert voice.model.startswith("espeak")


async def test_every_turn_finds_the_socket_open(
    start_server: StartServer, make_voice: MakeVoice
) -> None:
    """The first one, and those after interruptions, each of which frees its row at once."""
    server = await start_server(throttle={"rtf": 0.5})
    voice = make_voice(server)
    async with talking(voice) as conversation:
        # The server counts a connection before the client knows that it may use it.
        await until(lambda: voice.is_connected, "the session has connected")
        for number in range(15):
            await conversation.cut(0.0 if number % 3 else 0.1, COUNTING)
        await until_metric(server, "tts_contexts_active", 0)
        await until_metric(server, "tts_slots_used", 0)
        assert await conversation.spoken("Yes.") == "Yes."
        assert all(metric.connection_reused for metric in conversation.metrics)
        assert metric_value(server, "tts_ws_accepted_total") == 1
        assert not conversation.errors


@pytest.mark.parametrize("heartbeat_s", [0.4, 15.0], ids=["by the heartbeat", "by a ping"])
async def test_a_connection_that_nat_forgot_is_replaced(
    server: RunningServer, make_voice: MakeVoice, heartbeat_s: float
) -> None:
    """Before the next reply, or with it: a ping goes with its first message."""
    async with (
        routing(server.websocket_url) as (router, url),
        talking(make_voice(url, heartbeat_s=heartbeat_s)) as conversation,
    ):
        await conversation.spoken("Yes.")
        router.forget()
        if heartbeat_s < 1.0:
            await until(lambda: router.accepted == 2, "the plugin connects again")
            await until_metric(server, "tts_ws_accepted_total", 2)
        assert await conversation.spoken("Yes, I can.") == "Yes, I can."
        assert recoverable(conversation.errors) == ([] if heartbeat_s < 1.0 else [True])


async def test_a_draining_server_finishes_and_the_next_takes_over(
    server: RunningServer, make_voice: MakeVoice
) -> None:
    """A reply ends on the draining socket; the next reply uses a new socket."""
    async with talking(make_voice(server)) as conversation:
        handle = conversation.reply("One, two, three, four, five.")
        await conversation.played(0.5)
        for session in list(server.state.sessions):
            session.drain(30_000)
        await until_metric(server, "tts_ws_accepted_total", 2)
        assert await ended(handle) == "One, two, three, four, five."
        assert await conversation.spoken("Yes.") == "Yes."
        await until_metric(server, "tts_ws_connections", 1)
        assert not conversation.errors


async def test_close_ends_streams_and_is_final(
    served: ServerProcess, make_voice: MakeVoice
) -> None:
    """`aclose` ends a reply in progress; later calls fail because the plugin is closed."""
    voice = make_voice(served)
    stream = voice.stream()
    stream.push_text(COUNTING)
    await anext(stream)
    await voice.aclose()
    await voice.aclose()
    assert not voice.is_connected
    with pytest.raises(APIConnectionError):
        await voice.synthesize("Yes.").collect()


async def test_a_voice_that_nobody_holds_leaves_its_server(server: RunningServer) -> None:
    """LiveKit closes no TTS that an agent drops, such as one of a handoff."""
    async with aiohttp.ClientSession() as session:
        voice = TTS(url=server.websocket_url, http_session=session)
        await voice.synthesize("Yes.").collect()
        del voice

        def is_left() -> bool:
            gc.collect()
            return not server.state.sessions

        await until(is_left, "the socket is closed")


@pytest.mark.alone
async def test_sixty_four_replies_at_once_have_no_gap(
    server: RunningServer, make_voice: MakeVoice
) -> None:
    """All replies share one socket, and the audio of each one has no gap."""
    voice, options = make_voice(server), APIConnectOptions(max_retry=0, timeout=PATIENCE_S)
    loop = asyncio.get_running_loop()

    async def watch(stalls_s: list[float]) -> None:
        while True:
            started = loop.time()
            await asyncio.sleep(0.005)
            stalls_s.append(loop.time() - started - 0.005)

    async def underrun_s() -> float:
        clock = PlayoutClock()
        async with voice.stream(conn_options=options) as stream:
            stream.push_text("Yes, of course.")
            stream.end_input()
            async for event in stream:
                clock.send(event.frame.samples_per_channel, loop.time())
        assert clock.sent_samples
        return clock.underrun_s

    async def listen() -> tuple[float, float]:
        stalls_s = [0.0]
        watching = asyncio.create_task(watch(stalls_s))
        try:
            underruns_s = await asyncio.gather(*(underrun_s() for _ in range(64)))
        finally:
            watching.cancel()
        return max(underruns_s), max(stalls_s)

    longest_underrun_s, longest_stall_s = await undisturbed(listen)
    assert longest_underrun_s <= 0.02 + longest_stall_s
