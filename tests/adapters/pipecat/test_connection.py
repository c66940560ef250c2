"""When the service connects, what a server that drains or is gone costs, and what is logged."""

import asyncio
from typing import Any

import pytest
from pipecat.frames.frames import (
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSSpeakFrame,
)

from testbed.pipecat_conversation import counter_of, service, speaks, talking
from testbed.proxy import Router, routing
from testbed.scripted_pipecat import reply
from testbed.servers import close_sockets
from testbed.understudy import switching
from testbed.waiting import until
from voiceagent_tts.adapters.pipecat import VoiceAgentTTSService, speaking
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.demo.realtime_file_transport import RealtimeFileTransport
from voiceagent_tts.server.serve import RunningServer

COUNTING = "One, two, three, four, five."


def through(url: str, **options: Any) -> VoiceAgentTTSService:
    """A service in English for the server behind `url`."""
    return VoiceAgentTTSService(
        url=url, settings=VoiceAgentTTSService.Settings(language="en"), **options
    )


def drain(server: RunningServer) -> None:
    """Have the server drain its sockets; it ends what it speaks."""
    for session in list(server.state.sessions):
        session.drain(30_000)


async def test_a_turn_connects_without_other_attempts(server: RunningServer) -> None:
    """With the server down at the start, and after a loss."""
    async with routing(server.websocket_url) as (line, url):
        line.go_down()
        tts = through(url, reconnect_attempts=0)
        disconnected = counter_of(tts, "on_disconnected")
        async with talking(tts) as conversation:
            await until(lambda: bool(conversation.errors), "the outage is noticed")
            await conversation.reply("Yes, I can.")
            line.come_up()
            assert await conversation.spoken() == "Yes, I can."
            close_sockets(server)
            await until(lambda: disconnected() == 1, "the loss is noticed")
            await speaks(conversation)


async def test_a_refused_key_is_told_after_another_refusal() -> None:
    """It is permanent; one that is refused again, when the service was given a chance, is news."""
    statuses = ["503 Service Unavailable"]

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        status = statuses.pop() if statuses else "401 Unauthorized"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listener:
        tts = through(f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        async with talking(tts) as conversation:
            for told in (2, 3):
                await until(lambda count=told: len(conversation.errors) == count, "it is told")
                assert "HTTP 401: expected a valid key" in conversation.errors[-1].error
                assert not tts.is_usable
                await tts.set_usable(True)
                await conversation.push(*reply("Yes."))
    assert "HTTP 503" in conversation.errors[0].error


async def test_a_drain_that_outlasts_all_attempts_cuts_nothing_off(
    server: RunningServer, logged: list[str]
) -> None:
    """The reply is spoken on by the next server, when the draining one has closed in the middle."""
    async with routing(server.websocket_url) as (line, url):
        tts = through(url, reconnect_attempts=1, response_timeout_s=2.0, max_lead_s=0.5)
        async with talking(tts) as conversation:
            context_id = await conversation.reply(COUNTING)
            await conversation.play(context_id, 0.3)
            line.refuse()
            drain(server)
            await until(lambda: any("after 1 attempts" in each for each in logged), "it gives up")
            close_sockets(server)
            line.come_up()
            assert await conversation.spoken() == COUNTING
            assert not [each for each in conversation.errors if "connection_lost" in each.error]
            assert all(each.startswith(f"{tts.name}: ") for each in logged)


async def test_nothing_fails_over_while_a_draining_server_speaks(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply is finished there, although its LLM pauses while no server accepts sockets."""
    monkeypatch.setattr(speaking, "_FAILOVER_S", 0.0)
    async with routing(server.websocket_url) as (line, url):
        first, out = through(url), RealtimeFileTransport()
        async with switching(first, out.output()) as both:
            worker = both.worker
            await worker.queue_frames([LLMFullResponseStartFrame(), LLMTextFrame("Yes. ")])
            context_id, _ = await both.asked.get()
            await out.wait_until_played(context_id, SAMPLE_RATE_HZ // 5)
            line.refuse()
            drain(server)
            await until(lambda: first._playout_end_s < first._now_s(), "all is heard")
            await _attempts(line, 2)
            await worker.queue_frame(TTSSpeakFrame("One moment."))
            await _attempts(line, 2)
            await worker.queue_frames([LLMTextFrame("I can."), LLMFullResponseEndFrame()])
            heard = sum(each.played_samples for each in out.utterances)
            await out.wait_until_played(context_id, heard + SAMPLE_RATE_HZ // 5)
            assert first.is_usable and not both.second.said


async def _attempts(line: Router, count: int) -> None:
    enough = line.refused + count
    await until(lambda: line.refused >= enough, "the service tries to connect")


async def test_text_after_the_end_is_dropped(server: RunningServer) -> None:
    """It raises nothing and connects to nothing."""
    tts = service(server)
    async with talking(tts) as conversation:
        await speaks(conversation)
    assert [frame async for frame in tts.run_tts("Goodbye.", "late")] == [None]
    await until(lambda: not server.state.sessions, "no socket is left")
    assert not conversation.errors


async def test_an_ordinary_end_logs_nothing(server: RunningServer, logged: list[str]) -> None:
    """A log has lines where something is wrong, or changes; handlers hear of both ends once."""
    tts = service(server)
    connected, disconnected = counter_of(tts, "on_connected"), counter_of(tts, "on_disconnected")
    async with talking(tts) as conversation:
        await speaks(conversation)
        assert (connected(), disconnected()) == (1, 0)
    assert (connected(), disconnected()) == (1, 1)
    assert logged == []


async def test_the_log_says_who_left_the_server_and_why(
    server: RunningServer, logged: list[str]
) -> None:
    """A server that drains is not a connection that broke."""
    tts = service(server)
    connected = counter_of(tts, "on_connected")
    async with talking(tts):
        drain(server)
        await until(lambda: connected() == 2, "the next server")
        close_sockets(server)
        await until(lambda: connected() == 3, "the connection after a loss")
    drained, lost = logged
    assert drained == f"{tts.name}: left the server: it drains"
    assert lost.startswith(f"{tts.name}: left the server: ") and "1011" in lost
