"""What sockets, contexts and requests leave behind: nothing for the garbage collector.

A full collection stops the event loop for as long as it visits all that is alive, so a server is to
need none: each object is freed with the last that names it.
"""

import asyncio
import gc
import json
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
from voiceagent_tts.settings.access import Quota

_TIMES = 4
_OURS = (
    "voiceagent_tts.server",
    "voiceagent_tts.synthesizer",
    "voiceagent_tts.word_times",
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
    await _check_no_garbage(server, use)


@pytest.mark.parametrize("use", [_reply, _cancelled])
async def test_words_that_aligners_find_leave_nothing(
    start_server: StartServer, use: Callable[[RunningServer], Awaitable[None]]
) -> None:
    """A context and its aligners know each other no longer than it lives."""
    server = await start_server(throttle={"without_words": True})
    await _check_no_garbage(server, use)


async def _check_no_garbage(
    server: RunningServer, use: Callable[[RunningServer], Awaitable[None]]
) -> None:
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


def _messages(**fields: object) -> tuple[str, ...]:
    """Open a context of `tts.v1`, and send its whole text."""
    opening = {"type": "context.open", "context_id": "a", "language": "en", **fields}
    text = {"type": "text", "context_id": "a", "text": _TEXT}
    return tuple(map(json.dumps, (opening, text, {"type": "end", "context_id": "a"})))


def _cartesia(context_id: str) -> str:
    audio_format = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
    fields = {"transcript": _TEXT, "context_id": context_id, "output_format": audio_format}
    return json.dumps({**fields, "language": "en", "continue": False})


_TTS_V1, _VLLM = "/v1/tts/ws", "/v1/audio/speech/stream"
_UTTERANCES = (
    '{"type": "session.config"}',
    *('{"type": "input.text", "text": "Hello. "}', '{"type": "input.done"}') * 3,
)
_ELEVENLABS = tuple(json.dumps({"text": _TEXT, "context_id": str(at)}) for at in range(3))
_CANCEL = '{"type": "cancel", "context_id": "a"}'
_SENT = {
    "two contexts": (_TTS_V1, (*_messages(), *_messages(context_id="b"))),
    "opened and cancelled": (_TTS_V1, (_messages()[0], _CANCEL)),
    "texts and a cancel": (_TTS_V1, (*_messages(), _CANCEL)),
    "three at once of vLLM-Omni": (_VLLM, _UTTERANCES),
    "three at once of Cartesia": ("/tts/websocket", tuple(map(_cartesia, "abc"))),
    "three at once of ElevenLabs": ("/v1/text-to-speech/en/multi-stream-input", _ELEVENLABS),
}


@pytest.mark.parametrize("kind", _SENT)
@pytest.mark.parametrize("steps", [0, 50])
async def test_a_limited_key_leaves_nothing(
    start_server: StartServer, kind: str, steps: int
) -> None:
    """Contexts that a limit refuses, and sockets that break off while theirs are opened."""
    server = await start_server(
        api_keys=("key",), key_limits=Quota(contexts=1), ip_limits=Quota(contexts=1)
    )
    path, messages = _SENT[kind]
    url = server.websocket_url.replace(_TTS_V1, path)

    async def use(server: RunningServer) -> None:
        async with connect(url, additional_headers={"X-API-Key": "key"}) as socket:
            for message in messages:
                await socket.send(message)
            for _ in range(steps):
                await asyncio.sleep(0)
            socket.transport.abort()

    await _check_no_garbage(server, use)


async def _refused_files(server: RunningServer) -> None:
    body = {"input": _TEXT, "language": "en"}
    async with httpx.AsyncClient(base_url=server.url, headers={"X-API-Key": "key"}) as http:
        answers = await asyncio.gather(*(http.post("/v1/audio/speech", json=body) for _ in "abc"))
    assert {200, 429} == {answer.status_code for answer in answers}


async def test_a_file_that_a_limit_refuses_leaves_nothing(start_server: StartServer) -> None:
    """As a context of a socket."""
    server = await start_server(api_keys=("key",), key_limits=Quota(contexts=1))
    await _check_no_garbage(server, _refused_files)


def test_full_collections_are_rare() -> None:
    """They begin after twenty times as many objects as with Python's own threshold."""
    before = gc.get_threshold()
    try:
        collect_rarely()
        assert gc.get_threshold() == (*before[:2], 20 * before[2])
    finally:
        gc.set_threshold(*before)
