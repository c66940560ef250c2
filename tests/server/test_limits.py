"""What one client can take of a server: messages, contexts, connections, open files."""

import asyncio
import asyncio.constants
import json
import os
import re
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import httpx
import pytest
from structlog.testing import capture_logs

from testbed.raw_websocket import TEXT, frame, raw_websocket
from testbed.servers import StartServer, metric_value
from testbed.waiting import PATIENCE_S, until
from testbed.wire import Wire
from voiceagent_tts.protocol.messages import ErrorMessage
from voiceagent_tts.server import app, connections
from voiceagent_tts.server.connections import RequestProtocol
from voiceagent_tts.server.serve import RunningServer


async def test_refused_messages_do_not_fill_the_log(server: RunningServer) -> None:
    """No limit counts them; each is answered and counted, and only some are logged."""
    answered = 0
    with capture_logs() as logs:
        async with raw_websocket(server.url, "/v1/tts/ws") as raw:
            await raw.send(frame(TEXT, b'{"type": "context.open", "context_id": 5}') * 300)
            async with asyncio.timeout(PATIENCE_S):
                while answered < 300:
                    answered += b'"error"' in (await raw.receive())[1]
    assert metric_value(server, "tts_errors_total", code="invalid_param") >= 300
    assert 10 <= [line["event"] for line in logs].count("message_refused") <= 100


async def test_cancelled_contexts_that_are_not_read_do_not_pile_up(
    start_server: StartServer,
) -> None:
    """Each holds its text until its `done` is sent; the others are opened when it was."""
    server = await start_server(max_contexts=2)
    async with raw_websocket(server.url, "/v1/tts/ws") as raw:
        (session,) = server.state.sessions
        contexts = session._writer.contexts
        messages = (
            message
            for context_id in map(str, range(30))
            for message in (
                {"type": "context.open", "context_id": context_id, "language": "en"},
                {"type": "text", "context_id": context_id, "text": "日" * 15_000},
                {"type": "cancel", "context_id": context_id},
            )
        )
        frames = [frame(TEXT, json.dumps(each, ensure_ascii=False).encode()) for each in messages]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(raw.send(*frames))
            await until(lambda: len(contexts) > 4, "contexts wait")
            for _ in range(500):  # the server reads as much as it will
                await asyncio.sleep(0)
            most, done = len(contexts), 0
            async with asyncio.timeout(PATIENCE_S):
                while done < 30:
                    done += b'"done"' in (await raw.receive())[1]
    assert most == 5


@pytest.fixture
def permit_files() -> Iterator[Callable[[int | None], None]]:
    """Limits how many files this process may open beside those that it has open; None ends it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:

        def permit(more: int | None) -> None:
            if more is None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                return
            number = os.dup(0)
            while number < max(map(int, os.listdir("/proc/self/fd"))) - 1:  # it has one of its own
                stack.callback(os.close, number)
                number = os.dup(0)
            stack.callback(os.close, number)
            resource.setrlimit(resource.RLIMIT_NOFILE, (number + 1 + more, hard))

        yield permit
        permit(None)


async def _get(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], path: str) -> bytes:
    reader, writer = connection
    answer = b""
    with suppress(ConnectionError):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
    writer.close()
    return answer


async def test_connections_leave_open_files_to_others(
    start_server: StartServer,
    permit_files: Callable[[int | None], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The last ones are refused with one warning, and those before them served."""
    server = await start_server()
    permit_files(connections._RESERVED_FILES + 8)
    with capture_logs() as logs:
        opened = [await asyncio.open_connection("127.0.0.1", _port_of(server)) for _ in range(10)]
        answers = [await _get(each, "/") for each in opened]
    served = [answer.startswith(b"HTTP/1.1 200 OK") for answer in answers]
    assert served == sorted(served, reverse=True)
    assert 2 <= sum(served) <= 5  # the test holds as many files as the server
    assert [each["event"] for each in logs].count("open_files_ran_out") == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_server_without_open_files_serves_again_when_there_are_some(
    start_server: StartServer,
    permit_files: Callable[[int | None], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each connection that could not be accepted was a traceback, sixteen in a second."""
    monkeypatch.setattr(asyncio.constants, "ACCEPT_RETRY_DELAY", 0.05)
    server = await start_server()
    with closing(socket.socket()) as client, capture_logs() as logs:
        permit_files(0)
        client.connect(("127.0.0.1", _port_of(server)))
        await until(lambda: bool(logs), "the lack is told")
        permit_files(None)
        assert b"200 OK" in await _get(await asyncio.open_connection(sock=client), "/health/live")
    assert [each["event"] for each in logs].count("open_files_ran_out") == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def _port_of(server: RunningServer) -> int:
    return int(server.url.rpartition(":")[2])


_GET = b"GET /health/live HTTP/1.1\r\nHost: a\r\n"
_POST = b"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
_UPGRADE = b"GET /v1/tts/ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
SENT = {
    "nothing": (b"", []),
    "half of a line": (b"GET /health/li", []),
    "lines without an end": (_GET, []),
    "a second request": (_GET + b"\r\nGET /health/li", [200]),
    "a body that does not come": (_POST + b'Content-Length: 9\r\n\r\n{"input"', [408]),
    "a chunk that does not come": (_POST + _CHUNKED + b"1\r\n{\r\n", [408]),
    "a handshake with a long header": (_UPGRADE + b"X: " + b"a" * 9000 + b"\r\n\r\n", [400]),
    "a handshake with many headers": (_UPGRADE + b"X: a\r\n" * 200 + b"\r\n", [400]),
    "a handshake with a body": (_UPGRADE + b"Content-Length: 2\r\n\r\n{}", [400]),
    "a handshake with chunks": (_UPGRADE + _CHUNKED, [400]),
    "some headers": (_GET + b"a:b\r\n" * 200 + b"\r\n", [200]),
    "many headers": (_GET + b"a:b\r\n" * 1_000 + b"\r\n", []),
    "some trailers, twice": (
        2 * (_POST + _CHUNKED + b"1\r\n{\r\n0\r\n" + b"X-a: b\r\n" * 100 + b"\r\n"),
        [400, 400],
    ),
}
"""What a client sends, and the statuses of the answers until its connection ends."""


@pytest.mark.parametrize("kind", SENT)
async def test_every_connection_has_its_answers_and_an_end(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Whatever comes of a request, it occupies an open file, and the loop, for a while only."""
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    monkeypatch.setattr(app, "BODY_S", 0.1)
    server = await start_server()
    sent, statuses = SENT[kind]
    reader, writer = await asyncio.open_connection("127.0.0.1", _port_of(server))
    writer.write(sent)
    answer = b""
    async with asyncio.timeout(PATIENCE_S):
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                answer += data
    writer.close()
    assert [int(each) for each in re.findall(rb"HTTP/1.1 (\d+)", answer)] == statuses
    assert (b"idle_timeout" in answer) == (statuses == [408])


async def test_a_complete_request_may_take_as_long_as_its_speech(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times for a body and for a request end with them."""
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    monkeypatch.setattr(app, "BODY_S", 0.2)
    server = await start_server()
    async with httpx.AsyncClient(base_url=server.url) as client:
        long_text = {"input": "This is a sentence of some length. " * 200, "response_format": "pcm"}
        assert (await client.post("/v1/audio/speech", json=long_text)).status_code == 200


async def test_requests_do_not_wait_for_each_other(server: RunningServer) -> None:
    """Thousands of requests at once take no memory; they are answered one after the other."""
    state = server.uvicorn_server.server_state
    answers = b""
    reader, writer = await asyncio.open_connection("127.0.0.1", _port_of(server))
    writer.write(b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n" * 2_000)
    writer.write_eof()
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            answers += data
            assert len(state.tasks) <= 2  # one may have just ended
    assert answers.startswith(b"HTTP/1.1 200 OK")
    assert b" 400 " not in answers
    writer.close()


async def test_many_connections_at_once_are_accepted_a_few_at_a_time(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop has other work between them; and none of them is refused meanwhile."""
    server = await start_server()
    loop = asyncio.get_running_loop()
    accepted = [0]
    original = RequestProtocol.connection_made

    def connection_made(self: RequestProtocol, transport: asyncio.Transport) -> None:
        accepted[-1] += 1
        original(self, transport)

    def count() -> None:
        accepted.append(0)
        if sum(accepted) < 300:
            loop.call_soon(count)

    monkeypatch.setattr(RequestProtocol, "connection_made", connection_made)
    count()
    with ExitStack() as stack:
        for _ in range(300):  # without a return to the event loop: all wait in the kernel
            address = ("127.0.0.1", _port_of(server))
            stack.enter_context(socket.create_connection(address, timeout=PATIENCE_S))
        await until(lambda: sum(accepted) >= 300, "all are accepted")
    assert max(accepted) <= 16


async def _send_until_closed(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, part: bytes
) -> None:
    """Send `part` again and again until the server ends the connection, which it has to do soon."""
    sent_bytes = 0
    with suppress(ConnectionError):
        while not writer.is_closing() and not reader.at_eof():
            assert sent_bytes < 4 << 20, "lines without an end are read"
            writer.write(part * 1000)
            sent_bytes += 1000 * len(part)
            await writer.drain()
            await asyncio.sleep(0)
    writer.close()


@pytest.mark.parametrize("part", [b"X-a: b\r\n", b"x"], ids=["many headers", "a long one"])
async def test_headers_have_an_end(start_server: StartServer, part: bytes) -> None:
    """A connection whose headers do not end is closed; one with a body that is refused is not."""
    server = await start_server()
    reader, writer = await asyncio.open_connection("127.0.0.1", _port_of(server))
    writer.write(b"GET /health/live HTTP/1.1\r\nX: ")
    await _send_until_closed(reader, writer, part)
    async with httpx.AsyncClient(base_url=server.url) as client:
        for _ in range(2):
            refused = await client.post("/v1/audio/speech", content=bytes(2 << 20))
            assert refused.status_code == 413
            assert (await client.get("/health/live")).status_code == 200


@pytest.mark.parametrize("key", ["key", "none"])
@pytest.mark.parametrize("part", [b"X-a: b\r\n", b"x"], ids=["many trailers", "a long one"])
async def test_trailers_have_an_end(start_server: StartServer, key: str, part: bytes) -> None:
    """What comes behind a chunked body is kept; few are read, also of a client without a key."""
    server = await start_server(api_keys=("key",))
    reader, writer = await asyncio.open_connection("127.0.0.1", _port_of(server))
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\n"
    writer.write(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nX: ")
    await _send_until_closed(reader, writer, part)


async def test_a_body_that_breaks_behind_its_refusal_ends_the_connection(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no second answer to its request, and no traceback."""
    reader, writer = await asyncio.open_connection("127.0.0.1", _port_of(server))
    writer.write(b"GET /none HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404")
    writer.write(b"no size\r\n")
    async with asyncio.timeout(PATIENCE_S):
        assert b"HTTP/1.1" not in await reader.read()
    writer.close()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_few_sockets_have_a_large_message_that_does_not_end(server: RunningServer) -> None:
    """Their memory is bounded; where few have one, it is read to its end, and answered."""
    begun = b"\x81\xff" + (600_000).to_bytes(8, "big") + bytes(4 + 200_000)  # masked with zeros
    with ExitStack() as stack:
        urls = [server.websocket_url] * (connections._MAX_UNFINISHED + 3)
        wires = [await Wire.connect(url) for url in urls]
        for wire in wires:  # within a message, the server reads no close that it would answer
            stack.callback(wire.websocket.transport.abort)
            wire.websocket.transport.write(begun)
        await until(lambda: sum(is_closed(wire) for wire in wires) == 3, "three are closed")
        codes = [wire.websocket.close_code for wire in wires if is_closed(wire)]
        assert codes == [1009] * 3
        open_wire = next(wire for wire in wires if not is_closed(wire))
        open_wire.websocket.transport.write(bytes(400_000))
        assert (await open_wire.until(ErrorMessage)).code == "invalid_json"


def is_closed(wire: Wire) -> bool:
    return wire.websocket.close_code is not None
