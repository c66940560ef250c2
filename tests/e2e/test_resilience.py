"""Clients and engines that fail, stall or vanish: nothing leaks, and other contexts continue."""

import asyncio
import gc
import json
import os
import random
import signal
import socket
from typing import Any

import httpx
import psutil
import pytest
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus

from testbed.servers import StartServer, until_free, worker_of
from testbed.waiting import PATIENCE_S, undisturbed, until
from testbed.wire import ReceivedContext, Wire
from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.speech import speaking as speech_over_http
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.server import serve, websocket
from voiceagent_tts.server.serve import RunningServer

SENTENCE = "The quick brown fox jumps over the lazy dog. "


async def speaking(
    wire: Wire, *, max_lead_s: float | None = 0.3, sentences: int = 20
) -> ReceivedContext:
    """Open a context and wait until it speaks."""
    return await wire.start(SENTENCE * sentences, max_lead_s=max_lead_s, language="en")


# Clients


@pytest.mark.parametrize("is_reset", [True, False], ids=["reset", "closed"])
async def test_pain_01_a_lost_socket_frees_its_rows(server: RunningServer, is_reset: bool) -> None:
    """A socket lost during speech ends its contexts and frees their rows."""
    wire = await Wire.connect(server.websocket_url)
    for _ in range(3):
        await speaking(wire)
    assert worker_of(server).rows_used == 3
    if is_reset:
        wire.reset()
    await wire.close()
    await until_free(server)
    assert not server.state.sessions


@pytest.mark.parametrize("endings", [480, pytest.param(2000, marks=pytest.mark.thorough)])
async def test_pain_02_cancels_and_disconnects_leak_nothing(
    server: RunningServer, endings: int
) -> None:
    """Random cancels and disconnects leave no context, row, task, descriptor or process."""
    await _talk_wildly(server, random.Random(0), 50)  # create everything that is created once
    await until_free(server)
    await until(lambda: not server.uvicorn_server.server_state.connections, "sockets are closed")
    tasks, descriptors, processes = _resources()
    await asyncio.gather(*(_talk_wildly(server, random.Random(n), endings // 8) for n in range(8)))
    await until_free(server)
    await until(lambda: _resources()[0] <= tasks, "no task is left")
    await until(lambda: _resources()[1] <= descriptors, "no descriptor is left")
    assert _resources()[2] == processes
    assert server.state.synthesizer.supervisors["espeak"].restarts == 0
    async with Wire.connected(server.websocket_url) as wire:
        assert (await wire.say(SENTENCE)).done.reason == "complete"


def _resources() -> tuple[int, int, int]:
    gc.collect()
    process = psutil.Process()
    return len(asyncio.all_tasks()), process.num_fds(), len(process.children(recursive=True))


async def _talk_wildly(server: RunningServer, source: random.Random, endings: int) -> None:
    while endings > 0:
        wire = await Wire.connect(server.websocket_url)
        for _ in range(min(endings, source.randint(1, 12))):
            endings -= 1
            received = await wire.open(max_lead_s=source.choice((0, None)))
            for _ in range(source.randint(0, 3)):
                await wire.text(received, SENTENCE[: source.randint(1, len(SENTENCE))])
            if source.random() < 0.3:
                await wire.end(received)
            if source.random() < 0.3:
                await wire.receive()
            if source.random() < 0.8:
                await wire.cancel(received)
        if source.random() < 0.5:
            wire.reset()
        await wire.close()


def close_deaf_sockets_after(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Close sockets whose client does not read sooner than a server does otherwise."""
    for module in (serve, websocket):
        monkeypatch.setattr(module, "SLOW_CONSUMER_S", seconds)


def _small_socket(server: RunningServer) -> socket.socket:
    """Connect with kernel buffers of almost no size."""
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
    small.setblocking(False)
    return small


async def _flooded(server: RunningServer) -> Wire:
    """Connect a client that requests minutes of audio and does not read them.

    Its texts are as long as that takes: longer ones stop the event loop of the test.
    """
    options = {"sock": _small_socket(server), "max_queue": 1, "ping_interval": None}
    wire = await Wire.connect(server.websocket_url, **options)
    for _ in range(4):
        received = await wire.open(max_lead_s=0, language="en")
        await wire.text(received, SENTENCE * 60)
        await wire.end(received)
    return wire


async def test_a_client_that_never_reads_is_closed(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that never reads is closed (4008) and frees its rows; a neighbour hears no gap."""
    close_deaf_sockets_after(monkeypatch, 1.0)
    server = await start_server()

    async def underrun_of_neighbour() -> float:
        async with Wire.connected(server.websocket_url) as neighbour:
            received = await neighbour.open(max_lead_s=1.0, language="en")
            await neighbour.text(received, SENTENCE * 2)
            await neighbour.end(received)
            unread = await _flooded(server)
            async with asyncio.TaskGroup() as group:
                group.create_task(neighbour.finish(received))
                await until(lambda: len(server.state.sessions) == 1, "the never-reader is closed")
                await until(lambda: worker_of(server).rows_used <= 1, "its rows are free")
                with pytest.raises(ConnectionClosedError) as closed:
                    while True:
                        await unread.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4008
        assert any(context.pcm for context in unread.contexts.values()), "it was spoken to"
        assert received.done.reason == "complete"
        await until(lambda: not server.state.sessions, "the neighbour has left")
        return received.underrun_s

    assert await undisturbed(underrun_of_neighbour, holds=lambda seconds: seconds < 0.1) < 0.1


async def test_a_client_that_reads_after_all_leaves_no_timer(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing aborts a connection that is gone: asyncio would log a traceback."""
    close_deaf_sockets_after(monkeypatch, 0.3)
    server = await start_server()
    loop, timers = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
    call_later = loop.call_later

    def call_later_noted(delay_s: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
        if getattr(callback, "__name__", "") != "abort":
            return call_later(delay_s, callback, *args)
        timers.append(call_later(PATIENCE_S, callback, *args))  # the client reads before it is due
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", call_later_noted)
    unread = await _flooded(server)
    await until(lambda: bool(timers), "it is closed")
    await unread.close()
    await until(lambda: not server.uvicorn_server.server_state.connections, "it is gone")
    assert all(timer.cancelled() for timer in timers)


async def test_a_client_that_stays_deaf_is_cut(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If even the close frame is not read, the connection is aborted and no socket is left."""
    close_deaf_sockets_after(monkeypatch, 0.3)
    server = await start_server()
    unread = await _flooded(server)
    connections = server.uvicorn_server.server_state.connections
    await until(lambda: not connections, "the connection is gone")
    await until_free(server)
    unread.reset()
    await unread.close()


async def test_a_drain_ends_when_the_sockets_are_told(start_server: StartServer) -> None:
    """A server that ends while a client is behind closes with 1001, not with 1012 (restart)."""
    server = await start_server()
    unread = await _flooded(server)
    await until(lambda: not unread.websocket.transport.is_reading(), "its buffers are full")
    draining = asyncio.create_task(server.state.drain(PATIENCE_S, is_hurried=lambda: True))
    await until(lambda: server.state.is_draining, "the drain has begun")
    assert not draining.done()
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            await unread.receive()
    await draining
    assert not server.state.sessions
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001


async def test_an_unread_body_frees_its_row(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An HTTP client that requests minutes of audio and reads none holds no row."""
    close_deaf_sockets_after(monkeypatch, 0.3)
    server = await start_server()
    body = json.dumps({"input": SENTENCE * 300, "response_format": "pcm"})
    with _small_socket(server) as unread:
        unread.send(
            b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body.encode())
        )
        await until(lambda: worker_of(server).rows_used == 1, "it is being spoken")
        await until(lambda: not server.uvicorn_server.server_state.connections, "it is aborted")
        await until_free(server)


async def test_sockets_have_a_limit(start_server: StartServer) -> None:
    """A socket over the limit is refused before the upgrade, with a time to retry."""
    server = await start_server(max_sockets=1)
    async with Wire.connected(server.websocket_url):
        with pytest.raises(InvalidStatus) as refused:
            await Wire.connect(server.websocket_url)
        assert refused.value.response.status_code == 503
        assert refused.value.response.headers["Retry-After"] == "1"
    await until(lambda: not server.state.sessions, "the first has left")
    async with Wire.connected(server.websocket_url) as wire:
        assert (await wire.say("There is room.")).done.reason == "complete"


async def test_a_client_that_answers_no_ping_is_closed(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client whose machine has vanished is noticed by its missing pongs."""
    monkeypatch.setattr(serve, "PING_INTERVAL_S", 0.2)
    server = await start_server()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    writer.write(
        b"GET /v1/tts/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert b" 101 " in await reader.readline()
    async with asyncio.timeout(20):
        await reader.read()  # ends with the connection
    writer.close()
    await until(lambda: not server.state.sessions, "the session has ended")


# Engines


async def test_a_killed_worker_fails_only_what_it_spoke(server: RunningServer) -> None:
    """After kill -9 in mid-utterance: `engine_error`, `done`, and the next context speaks."""
    async with Wire.connected(server.websocket_url) as wire:
        contexts = [await speaking(wire) for _ in range(3)]
        os.kill(worker_of(server).pid, signal.SIGKILL)
        for received in contexts:
            await wire.finish(received)
            assert received.error is not None
            assert (received.error.code, received.done.reason) == (ErrorCode.ENGINE_ERROR, "error")
            assert received.error.retryable
        assert (await wire.say("I am back.")).done.reason == "complete"
    await until_free(server)


async def test_a_killed_worker_cuts_a_body(server: RunningServer) -> None:
    """Over HTTP the body ends without its last chunk, so that it does not look complete."""
    body = {"input": SENTENCE * 400, "response_format": "wav"}
    async with httpx.AsyncClient(base_url=server.url, timeout=20) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            async with http.stream("POST", "/v1/audio/speech", json=body) as response:
                assert response.status_code == 200
                chunks = response.aiter_bytes()
                await anext(chunks)
                os.kill(worker_of(server).pid, signal.SIGKILL)
                async for _ in chunks:
                    pass
        response = await http.post("/v1/audio/speech", json={"input": "I am back."})
        assert response.status_code == 200
    await until_free(server)


async def test_an_engine_that_crashes_on_the_way(start_server: StartServer) -> None:
    """Audio before the crash was sent; a context that needs less is spoken to its end."""
    server = await start_server(throttle={"crash_after_s": 1.5, "rtf": 0.2})
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.say(SENTENCE * 3)
        assert received.error is not None
        assert (received.error.code, received.done.reason) == (ErrorCode.ENGINE_ERROR, "error")
        assert received.words
        assert (await wire.say("Short.")).done.reason == "complete"


async def test_pain_10_a_silent_engine_ends_readiness(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an engine that hangs, contexts can be cancelled, HTTP gets an error, readiness ends."""
    monkeypatch.setattr(speech_over_http, "FIRST_AUDIO_S", 0.3)
    server = await start_server(throttle={"is_silent": True}, watchdog_s=0.2)
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.open(language="en")
        await wire.text(received, SENTENCE)
        await wire.end(received)
        async with httpx.AsyncClient(base_url=server.url, timeout=20) as http:
            response = await http.post("/v1/audio/speech", json={"input": SENTENCE})
            assert response.status_code == 500
            assert response.json()["error"]["code"] == ErrorCode.ENGINE_ERROR
            assert (await http.get("/health/ready")).status_code == 503
            assert (await http.get("/health/live")).status_code == 200
        await wire.stop(received)
        assert received.cancelled is not None
        assert received.cancelled.text_remaining == SENTENCE
        await until_free(server)


async def test_a_client_that_goes_before_the_first_sound(start_server: StartServer) -> None:
    """An HTTP client's disconnect frees its row even before the first audio."""
    server = await start_server(throttle={"is_silent": True}, watchdog_s=0.2)
    async with httpx.AsyncClient(base_url=server.url, timeout=None) as http:
        asking = asyncio.create_task(http.post("/v1/audio/speech", json={"input": SENTENCE}))
        await until(lambda: server.state.synthesizer.contexts_active == 1, "it waits for sound")
        asking.cancel()
        await asyncio.wait({asking})
    registry = server.state.metrics.registry
    labels = {"reason": "cancelled"}
    await until(lambda: registry.get_sample_value("tts_contexts_total", labels) == 1, "cancelled")


async def test_a_slow_engine_is_late_but_complete(start_server: StartServer) -> None:
    """An engine slower than real time sends everything, each frame as soon as it is made."""
    server = await start_server(throttle={"rtf": 3, "first_audio_s": 0.5})
    async with Wire.connected(server.websocket_url) as wire:
        received = await wire.say("Yes.", language="en")
    assert received.done.reason == "complete"
    assert received.done.ttfa_ms is not None
    assert received.done.ttfa_ms >= 500
    assert received.done.gen_ms is not None
    assert received.done.gen_ms >= received.audio_ms
    first = next(event for event in received.events if isinstance(event, ClientAudio))
    assert len(first.pcm) == FRAME_SAMPLES * BYTES_PER_SAMPLE
    await until_free(server)


async def test_a_server_that_closes_while_its_worker_restarts(start_server: StartServer) -> None:
    """A server that ends while a worker restarts leaves no process behind."""
    server = await start_server()
    worker = worker_of(server)
    # Not those before the server: what starts processes for tests begins with the first of them.
    others = set(psutil.Process().children()) - {psutil.Process(worker.pid)}
    os.kill(worker.pid, signal.SIGKILL)
    await worker.closed.wait()
    await until(lambda: set(psutil.Process().children()) != others, "the next worker starts")
    await server.state.close()
    assert set(psutil.Process().children()) == others
