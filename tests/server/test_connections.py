"""Many connections at once keep nobody waiting: one turn of the event loop does little work."""

import asyncio
import base64
import gc
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress

import pytest
from websockets.exceptions import InvalidStatus

from testbed.long_texts import MOST_CALLS
from testbed.loop_work import loop_work
from testbed.raw_websocket import TEXT, frame
from testbed.servers import StartServer
from testbed.waiting import PATIENCE_S
from testbed.wire import Wire
from voiceagent_tts.server import connections
from voiceagent_tts.server.serve import RunningServer
from voiceagent_tts.settings.access import Quota

_CONNECTIONS = 150
_SENTENCES = 24
_MOST_CALLS_OF_SENTENCES = 10_000  # one has about 1,000, with what the loop does meanwhile
_OPEN = frame(TEXT, b'{"type": "context.open", "context_id": "0", "language": "en"}')
_END = frame(TEXT, b'{"type": "end", "context_id": "0"}')
_PING = frame(TEXT, b'{"type": "ping", "t": 0}')
_UPGRADE = (
    b"GET /v1/tts/ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nX-API-Key: key\r\n"
    b"Sec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\n\r\n"
)
_GET = b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"
_POST = (
    b"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nX-API-Key: key\r\nExpect: 100-continue\r\n"
    b"Content-Type: application/json\r\n"
)
_CONTINUE = b"100 Continue"
_BODY = b'{"input": 0}'
_CHUNKS = b"1\r\n \r\n" * 1_300 + b"0\r\n\r\n"  # as many as are read at once


def _text(text: str) -> bytes:
    return frame(TEXT, f'{{"type": "text", "context_id": "0", "text": "{text}"}}'.encode())


Connect = Callable[[RunningServer, bytes, bytes], Sequence[socket.socket]]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens connections that send something and read up to an answer; in another thread."""
    with ExitStack() as stack:

        def connect(server: RunningServer, sent: bytes, answer: bytes) -> list[socket.socket]:
            address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
            opened: list[socket.socket] = []
            for _ in range(_CONNECTIONS):
                opened.append(socket.create_connection(address, timeout=PATIENCE_S))
                stack.enter_context(opened[-1])
                opened[-1].sendall(sent)
                _read(opened[-1], answer, 1)
            return opened

        yield connect


def _read(connection: socket.socket, answer: bytes, times: int) -> None:
    received = b""
    while received.count(answer) < times:
        received += (data := connection.recv(1 << 16))
        assert data, received


@pytest.mark.parametrize(
    ("before", "prompt", "sent", "answer", "times"),
    [
        pytest.param(_UPGRADE, b'"ready"', _PING * 15, b'"pong"', 15, id="pings"),
        pytest.param(_UPGRADE, b'"ready"', _OPEN * 6, b'"error"', 5, id="refused contexts"),
        pytest.param(b"", b"", _GET, b" 200 OK", 1, id="requests"),
        pytest.param(b"", b"", _UPGRADE, b'"ready"', 1, id="handshakes"),
        pytest.param(
            _POST + b"Content-Length: %d\r\n\r\n" % len(_BODY),
            _CONTINUE,
            _BODY,
            b" 400 ",
            1,
            id="bodies",
        ),
        pytest.param(
            _POST + b"Transfer-Encoding: chunked\r\n\r\n",
            _CONTINUE,
            _CHUNKS,
            b" 400 ",
            1,
            id="chunks",
        ),
    ],
)
async def test_many_connections_make_no_long_turn_of_the_loop(
    start_server: StartServer,
    monkeypatch: pytest.MonkeyPatch,
    connect: Connect,
    before: bytes,
    prompt: bytes,
    sent: bytes,
    answer: bytes,
    times: int,
) -> None:
    """What all of them send in one moment is done in several turns, and answered."""
    server = await start_server(api_keys=("key",), key_limits=Quota(contexts=1))
    opened = await asyncio.to_thread(connect, server, before, prompt)
    with loop_work(monkeypatch) as work:
        for each in opened:  # without a return to the event loop: all come in one turn
            each.sendall(sent)

        def read() -> None:
            for each in opened:
                _read(each, answer, times)

        await asyncio.to_thread(read)
    assert work.most <= MOST_CALLS


async def test_many_sentences_at_once_make_no_long_turn_of_the_loop(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    """However many contexts get text in one moment, few sentences are read in one turn."""
    server = await start_server(api_keys=("key",))
    opened = list(await asyncio.to_thread(connect, server, _UPGRADE, b'"ready"'))[:_SENTENCES]

    def send(*messages: bytes, answer: bytes) -> None:
        for each in opened:
            each.sendall(b"".join(messages))
        for each in opened:
            _read(each, answer, 1)

    await asyncio.to_thread(send, _OPEN, answer=b'"context.opened"')
    with loop_work(monkeypatch) as work:
        for number, each in enumerate(opened):  # all come in one turn
            each.sendall(_text(f"The table number {number} is booked for eight on the terrace."))
        await asyncio.to_thread(send, _END, answer=b'"done"')
    assert work.most <= _MOST_CALLS_OF_SENTENCES


async def test_sockets_that_open_together_are_read(
    start_server: StartServer, connect: Connect
) -> None:
    """However many handshakes one turn has, and whichever of them waits for the next one."""
    server = await start_server(api_keys=("key",))
    opened = list(await asyncio.to_thread(connect, server, b"", b""))
    for many in range(1, 17):
        together = [opened.pop() for _ in range(many)]
        for each in together:
            each.sendall(_UPGRADE)

        def talk(together: list[socket.socket] = together) -> None:
            for each in together:
                _read(each, b'"ready"', 1)
                each.sendall(_PING)
            for each in together:
                _read(each, b'"pong"', 1)

        await asyncio.to_thread(talk)


async def test_a_handshake_that_waits_when_a_drain_begins_is_refused(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client would not be told, and what it then opened would be cut off."""
    server = await start_server()

    async def begin_drain(turns: connections.Turns, owner: str, cost: int = 1) -> None:
        server.state.is_draining = True

    monkeypatch.setattr(connections.Turns, "wait", begin_drain)
    with pytest.raises(InvalidStatus) as refused:
        await Wire.connect(server.websocket_url)
    assert refused.value.response.status_code == 503


async def test_an_open_socket_keeps_no_headers(start_server: StartServer, connect: Connect) -> None:
    """Thousands of idle ones would hold 16 kB each; nobody reads them any more."""
    server = await start_server(api_keys=("key",))
    mark = b"remembered" * 400
    upgrade = _UPGRADE.replace(b"Host: a", b"Host: a\r\nX-Mark: " + mark)
    await asyncio.to_thread(connect, server, upgrade, b'"ready"')
    assert len(server.state.sessions) == _CONNECTIONS
    lists = [each for each in gc.get_objects() if type(each) is list and len(each) < 100]
    assert not [each for each in lists if mark in each or (b"x-mark", mark) in each]


async def test_a_request_that_never_ends_has_its_time(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where something of it waits for its turn whenever somebody looks."""
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    server = await start_server()
    monkeypatch.setattr(connections, "_TURN_BYTES", 1)
    port = int(server.url.rpartition(":")[2])
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        while not reader.at_eof() and reader.exception() is None:
            writer.write(b"a")
            await asyncio.sleep(0)
        writer.close()

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(drip(*each) for each in streams))


@pytest.mark.parametrize(("sent", "answer"), [(_GET, b" 200 OK"), (_UPGRADE, b'"ready"')])
async def test_a_request_whose_turn_comes_late_is_answered(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, sent: bytes, answer: bytes
) -> None:
    """It has come in time; the server was busy."""
    monkeypatch.setattr(connections, "REQUEST_S", 1.0)
    server = await start_server(api_keys=("key",))
    read_in_turn = connections.RequestProtocol._read_in_turn

    def read_late(self: connections.RequestProtocol) -> None:
        asyncio.get_running_loop().call_later(1.5, read_in_turn, self)

    monkeypatch.setattr(connections.RequestProtocol, "_read_in_turn", read_late)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    writer.write(sent)
    async with asyncio.timeout(PATIENCE_S):
        received = b""
        while answer not in received:
            received += (data := await reader.read(1 << 16))
            assert data, received
    writer.close()


async def test_a_connection_whose_turn_fails_is_closed(
    start_server: StartServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As asyncio closes one that fails at once; those that wait behind it have their turns."""
    monkeypatch.setattr(connections, "REQUEST_S", 2 * PATIENCE_S)  # which would close it later
    server = await start_server()
    monkeypatch.setattr(connections, "_TURN_BYTES", 1)  # of those that send together, one is read
    work_on = connections.RequestProtocol._work_on

    def fail(self: connections.RequestProtocol, data: bytes) -> None:
        if b"fail" in data:
            raise RuntimeError("planted")
        work_on(self, data)

    monkeypatch.setattr(connections.RequestProtocol, "_work_on", fail)
    failed: list[object] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_exception_handler", failed.append)
    port = int(server.url.rpartition(":")[2])
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
    for number, (_, writer) in enumerate(streams):
        writer.write(_GET if number % 2 else _GET.replace(b"live", b"fail"))
    async with asyncio.timeout(PATIENCE_S):
        for number, (reader, writer) in enumerate(streams):
            expected = b"HTTP/1.1 200 OK\r\n" if number % 2 else b""
            with suppress(ConnectionError):
                assert await reader.readline() == expected
            writer.close()
    assert len(failed) == 3
