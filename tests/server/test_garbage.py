"""What sockets, contexts and requests leave behind: nothing for the garbage collector.

A full collection stops the event loop for as long as it visits all that is alive, so a server is to
need none: each object is freed with the last that names it.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from testbed.servers import StartServer, until_free
from testbed.waiting import until
from voiceagent_tts.client import TTSClient
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.garbage import collect_rarely
from voiceagent_tts.server.connections import SocketProtocol
from voiceagent_tts.server.serve import RunningServer

_TIMES = 4
_OURS = (
    "voiceagent_tts.server",
    "voiceagent_tts.synthesizer",
    "voiceagent_tts.plugins",
    "uvicorn",
    "websockets.server",
)
_TEXT = "Hello my friend. How are you today? "


@pytest.fixture
async def server(start_server: StartServer) -> AsyncIterator[RunningServer]:
    """The server that is used."""
    yield await start_server()


async def _idle(server: RunningServer) -> None:
    async with TTSClient(server.url):
        pass


async def _reply(server: RunningServer) -> None:
    async with TTSClient(server.url) as client:
        context = await client.open(language="en")
        await context.send_text(_TEXT)
        await context.end()
        async for _ in context:
            pass


async def _breaks(server: RunningServer) -> None:
    async with TTSClient(server.url) as client:
        context = await client.open(language="en", markup=True)
        await context.send_text('Hello. <break time="0.1s"/> My friend. ')
        await context.end()
        async for _ in context:
            pass


async def _cancelled(server: RunningServer) -> None:
    async with TTSClient(server.url) as client:
        context = await client.open(language="en")
        await context.send_text(_TEXT)
        await anext(aiter(context))
        await context.cancel(played_ms=100)
        async for _ in context:
            pass


async def _cut_off(server: RunningServer) -> None:
    async with connect(f"{server.websocket_url}") as socket:
        await socket.send('{"type": "context.open", "context_id": "a", "language": "en"}')
        await socket.send('{"type": "text", "context_id": "a", "text": "Hello my friend. "}')
        while isinstance(await socket.recv(), str):
            pass
        socket.transport.abort()


async def _cut_off_within_a_message(server: RunningServer) -> None:
    async with connect(server.websocket_url) as socket:
        unfinished = b"\x81\xff" + (1 << 19).to_bytes(8) + bytes(4 + 1000)
        socket.transport.write(unfinished)
        await until(lambda: bool(_buffered_bytes(server)), "the server has read a part")
        socket.transport.abort()


async def _refused(server: RunningServer) -> None:
    async with TTSClient(server.url) as client:
        with pytest.raises(VoiceAgentError):
            context = await client.open(voice="nobody")
            async for _ in context:
                pass


async def _no_such_path(server: RunningServer) -> None:
    with pytest.raises(InvalidStatus):
        async with connect(server.websocket_url.replace("/v1/tts/ws", "/none")):
            pass


async def _file(server: RunningServer) -> None:
    async with httpx.AsyncClient(base_url=server.url) as http:
        answer = await http.post("/v1/audio/speech", json={"input": _TEXT, "language": "en"})
        assert answer.status_code == 200


async def _file_unread(server: RunningServer) -> None:
    body = {"input": _TEXT * 20, "language": "en", "response_format": "pcm"}
    async with (
        httpx.AsyncClient(base_url=server.url) as http,
        http.stream("POST", "/v1/audio/speech", json=body) as answer,
    ):
        await anext(answer.aiter_bytes())


async def _errors(server: RunningServer) -> None:
    async with httpx.AsyncClient(base_url=server.url) as http:
        assert (await http.post("/v1/audio/speech", json={"input": 1})).status_code == 400
        assert (await http.get("/v1/none")).status_code == 404


async def _until_over(server: RunningServer) -> None:
    await until(lambda: not server.state.sessions, "no socket is open")
    await until_free(server)
    connections = server.uvicorn_server.server_state
    await until(lambda: not connections.connections, "no connection is open")
    await until(lambda: not connections.tasks, "no request is served")


def _buffered_bytes(server: RunningServer) -> int:
    """What its sockets have of messages that have not ended."""
    connections = server.uvicorn_server.server_state.connections
    return sum(
        len(each.conn.reader.buffer) for each in connections if isinstance(each, SocketProtocol)
    )


def _alive() -> Counter[str]:
    """Objects of the server by their class."""
    kinds = (type(each) for each in gc.get_objects())
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in kinds
        if str(kind.__module__).startswith(_OURS)
    )


def _garbage() -> Counter[str]:
    """Objects of the server that only the collector finds, by their class."""
    before = _alive()
    gc.collect()
    return before - _alive()


@pytest.mark.parametrize(
    "use",
    [
        _idle,
        _reply,
        _breaks,
        _cancelled,
        _cut_off,
        _cut_off_within_a_message,
        _refused,
        _no_such_path,
        _file,
        _file_unread,
        _errors,
    ],
)
async def test_nothing_is_left_for_the_garbage_collector(
    server: RunningServer, use: Callable[[RunningServer], Awaitable[None]]
) -> None:
    """Not by a reply, however it ends, nor by a refusal: each object is freed with its last use."""
    await use(server)  # what is made once, stays
    await _until_over(server)
    gc.collect()
    gc.disable()
    try:
        for _ in range(_TIMES):
            await use(server)
        await _until_over(server)
        await asyncio.sleep(0)
        assert not _garbage()
    finally:
        gc.enable()


def test_full_collections_are_rare() -> None:
    """They begin after twenty times as many objects as with Python's own threshold."""
    before = gc.get_threshold()
    try:
        collect_rarely()
        assert gc.get_threshold() == (*before[:2], 20 * before[2])
    finally:
        gc.set_threshold(*before)
