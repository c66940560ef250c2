"""Requests and messages that nobody meant: no 500, no traceback, no hang; the next one works."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from testbed.examples import examples
from testbed.raw_websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    frame,
    raw_websocket,
)
from testbed.server_process import ServerProcess, serving
from testbed.waiting import PATIENCE_S
from testbed.wire import Wire
from voiceagent_tts.server.serve import MAX_READ_BYTES

ENDPOINTS = (
    "/v1/tts/ws",
    "/v1/audio/speech/stream",
    "/tts/websocket",
    "/v1/text-to-speech/default/stream-input?output_format=pcm_8000",
    "/v1/text-to-speech/default/multi-stream-input?output_format=pcm_8000",
)
_TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server process whose log has no traceback in the end, and which ends idle."""
    log = tmp_path_factory.mktemp("log") / "server.txt"
    with serving(log=log, max_audio_s="20", log_json="true") as process:
        yield process
        process.wait_until_idle()
    text = log.read_text(encoding="utf-8", errors="replace")
    assert "Traceback" not in text, text[text.index("Traceback") - 2000 :][:6000]


async def check_alive(url: str) -> None:
    """Check that the next request of another client is spoken."""
    async with Wire.connected(url) as wire:
        assert (await wire.say("Yes.")).done.reason == "complete"


# HTTP


@pytest.mark.thorough
def test_every_route_answers_whatever_its_schema_permits(server: ServerProcess) -> None:
    """Requests made from the OpenAPI document, valid and invalid, are never answered by a 500."""
    import schemathesis  # here: it loads slowly, and no other test needs it

    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    modes = list(schemathesis.GenerationMode)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= 15
    for operation in operations:
        cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes))

        @given(case=cases)
        @settings(
            max_examples=examples(30),
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        def answer(case: schemathesis.Case) -> None:
            response = case.call(base_url=server.url, timeout=_TIMEOUT_S)
            assert response.status_code != 500, (case.method, case.path, response.text)
            documented = case.operation.definition.raw["responses"]
            assert str(response.status_code) in documented, (case.method, case.path, response.text)

        answer()
    asyncio.run(check_alive(server.websocket_url))


# Messages

_TEXTS = st.sampled_from(["", " ", "Hi. ", "...", "\0", "🎉", "a" * 3000, "<break/>", "数字1次。"])
_IDS = st.sampled_from(["a", "b", "", None, 7, "x" * 200, "\n"])
_ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)
)
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(
        ["context.open", "text", "flush", "end", "cancel", "cut", "session.update", "prepare"]
        + ["ping", "close", "session.config", "input.text", "input.done", "voice.list", "x"]
    ),
    "context_id": _IDS,
    "text": _TEXTS,
    "transcript": _TEXTS,
    "continue": st.booleans(),
    "cancel": st.booleans(),
    "flush": st.booleans(),
    "flush_id": st.integers(-1, 3),
    "played_ms": st.integers(-1, 10**6),
    "close_context": st.booleans(),
    "close_socket": st.booleans(),
    "voice": st.sampled_from(["default", "nobody", {"mode": "id", "id": "default"}, 1]),
    "voice_settings": st.sampled_from([{}, {"speed": 1.1}, {"speed": "fast"}, []]),
    "output_format": st.just({"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}),
    "language": st.sampled_from(["en", "xx", None, "Auto"]),
    "xi_api_key": st.just("none"),
    "audio": st.sampled_from([{"encoding": "pcm_alaw", "sample_rate": 8000}, {"encoding": 1}]),
}
_OBJECTS = st.fixed_dictionaries({}, optional=_FIELDS)
_WRONG = st.dictionaries(st.sampled_from(list(_FIELDS)), _ODD, max_size=4)
_MESSAGES: st.SearchStrategy[str | bytes] = st.one_of(
    _OBJECTS.map(json.dumps),
    _OBJECTS.map(json.dumps),
    _WRONG.map(json.dumps),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.just("[" * 5000),
)


@pytest.mark.parametrize("path", ENDPOINTS)
@given(messages=st.lists(_MESSAGES, max_size=8), is_polite=st.booleans())
@settings(suppress_health_check=list(HealthCheck), database=None)
def test_any_messages_in_any_order_end_well(
    server: ServerProcess, path: str, messages: list[str | bytes], *, is_polite: bool
) -> None:
    """A socket answers or closes with a code, and closes at once when its client does."""

    async def talk() -> None:
        address = server.websocket_url.removesuffix("/v1/tts/ws") + path
        async with asyncio.timeout(_TIMEOUT_S):
            websocket = await connect(address, max_size=None)
            try:
                for message in messages:
                    await websocket.send(message)
            except ConnectionClosed:
                pass
            if is_polite:
                await websocket.close()
            else:
                websocket.transport.abort()
            await websocket.wait_closed()
        assert websocket.close_code not in (1011, None)

    asyncio.run(talk())


def test_the_next_client_is_served(server: ServerProcess) -> None:
    """After all of that another client speaks, and readiness holds."""
    asyncio.run(check_alive(server.websocket_url))
    assert httpx.get(f"{server.url}/health/ready").status_code == 200


# Frames: the cases of the Autobahn test suite by their groups.

_PING_TEXT = b'{"type": "ping", "t": 1}'
_BAD_UTF8 = b'{"text": "\xf0\x80\x80"}'
PROTOCOL_ERROR, INVALID_DATA, TOO_BIG = 1002, 1007, 1009
BROKEN_FRAMES: dict[str, tuple[bytes, tuple[int, ...]]] = {
    "reserved data opcode": (frame(0x3), (PROTOCOL_ERROR,)),
    "reserved control opcode": (frame(0xB), (PROTOCOL_ERROR,)),
    "reserved bit": (frame(TEXT, _PING_TEXT, rsv=1), (PROTOCOL_ERROR,)),
    "no mask": (frame(TEXT, _PING_TEXT, masked=False), (PROTOCOL_ERROR,)),
    "continuation of nothing": (frame(CONTINUATION, b"x"), (PROTOCOL_ERROR,)),
    "text within a text": (frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"), (PROTOCOL_ERROR,)),
    "long ping": (frame(PING, b"x" * 126), (PROTOCOL_ERROR,)),
    "fragmented ping": (frame(PING, b"x", fin=False), (PROTOCOL_ERROR,)),
    "invalid UTF-8": (frame(TEXT, _BAD_UTF8), (INVALID_DATA,)),
    "invalid UTF-8 in fragments": (
        frame(TEXT, _BAD_UTF8[:12], fin=False) + frame(CONTINUATION, _BAD_UTF8[12:]),
        (INVALID_DATA,),
    ),
    "too long": (frame(TEXT, b" " * (MAX_READ_BYTES + 1)), (TOO_BIG,)),
    "too long in fragments": (
        frame(TEXT, b" ", fin=False)
        + frame(CONTINUATION, b" " * 65_536, fin=False) * 10
        + frame(CONTINUATION),
        (TOO_BIG,),
    ),
    "fragments without an end": (
        frame(TEXT, fin=False) + frame(CONTINUATION, fin=False) * 2000,
        (TOO_BIG,),
    ),
    "a size of 2^63": (bytes((0x81, 0xFF)) + b"\xff" * 8, (PROTOCOL_ERROR, TOO_BIG)),
    "close of one byte": (frame(CLOSE, b"x"), (PROTOCOL_ERROR,)),
    "close with 0": (frame(CLOSE, b"\x00\x00"), (PROTOCOL_ERROR,)),
    "close with 1005": (frame(CLOSE, (1005).to_bytes(2, "big")), (PROTOCOL_ERROR,)),
    "close with 2999": (frame(CLOSE, (2999).to_bytes(2, "big")), (PROTOCOL_ERROR,)),
    "close with a reason of no UTF-8": (
        frame(CLOSE, (1000).to_bytes(2, "big") + b"\xff"),
        (PROTOCOL_ERROR, INVALID_DATA),
    ),
}


@pytest.mark.parametrize("name", BROKEN_FRAMES)
async def test_a_broken_frame_closes_its_socket(server: ServerProcess, name: str) -> None:
    """Each endpoint closes with the code of RFC 6455, or drops the connection."""
    data, codes = BROKEN_FRAMES[name]
    for path in ENDPOINTS:
        async with asyncio.timeout(PATIENCE_S), raw_websocket(server.url, path) as websocket:
            await websocket.send(data)
            assert await websocket.until_closed() in codes, path


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_client_that_still_writes_learns_the_code(server: ServerProcess, path: str) -> None:
    """The server reads on after its close frame, so that no reset overtakes the frame."""
    data, (code,) = BROKEN_FRAMES["too long"]
    more_than_kernels_buffer = bytes(16 << 20)
    async with asyncio.timeout(PATIENCE_S), raw_websocket(server.url, path) as websocket:
        await websocket.send(data, more_than_kernels_buffer)
        assert await websocket.until_closed() == code


async def test_a_message_may_come_in_fragments(server: ServerProcess) -> None:
    """Fragments, with a ping between them, are one message; a pong and the answer come."""
    async with asyncio.timeout(PATIENCE_S), raw_websocket(server.url, ENDPOINTS[0]) as websocket:
        halves = _PING_TEXT[:9], _PING_TEXT[9:]
        await websocket.send(
            frame(TEXT, halves[0], fin=False),
            frame(PING, b"between"),
            frame(CONTINUATION, b"", fin=False),
            frame(CONTINUATION, halves[1]),
            frame(BINARY, b"binary"),
        )
        frames = [await websocket.receive() for _ in range(4)]
        await websocket.send(frame(CLOSE, (1000).to_bytes(2, "big")))
        assert await websocket.until_closed() == 1000
    assert (PONG, b"between") in frames
    answers = [json.loads(payload)["type"] for opcode, payload in frames if opcode == TEXT]
    assert answers == ["ready", "pong", "error"]


async def test_a_byte_at_a_time_is_enough(server: ServerProcess) -> None:
    """A client that drips its message is answered."""
    async with asyncio.timeout(PATIENCE_S), raw_websocket(server.url, ENDPOINTS[0]) as websocket:
        for byte in frame(TEXT, _PING_TEXT):
            await websocket.send(bytes((byte,)))
        frames = [await websocket.receive() for _ in range(2)]
    assert b'"pong"' in frames[-1][1]
