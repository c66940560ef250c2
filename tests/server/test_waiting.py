"""Connections without a request: how many there are, and which of them gives way."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from testbed.raw_websocket import PING, PONG, RawWebSocket, frame
from testbed.servers import StartServer
from testbed.waiting import PATIENCE_S, until
from voiceagent_tts.server import connections
from voiceagent_tts.server.serve import RunningServer

_MOST = 4
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(params=["plain", "TLS"])
async def server(
    start_server: StartServer,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> RunningServer:
    """A server that permits few connections to wait."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(connections, "_MAX_WAITING", _MOST)
    return await start_server(ssl_self_signed=request.param == "TLS")


@pytest.fixture
def closed_later() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


async def _connect(server: RunningServer, closed_later: ExitStack, client: str) -> _Streams:
    host, _, port = server.url.partition("//")[2].partition(":")
    streams = await asyncio.open_connection(host, int(port), local_addr=(client, 0))
    closed_later.callback(streams[1].close)
    return streams


def _waiting() -> int:
    """Open connections without a request."""
    return sum(each.fileno() >= 0 for each, _ in connections._waiting.values())


async def test_a_stranger_takes_its_connections_from_itself(
    server: RunningServer, closed_later: ExitStack
) -> None:
    """Each beyond the bound ends its oldest one; another address keeps its only one."""
    other = await _connect(server, closed_later, "127.0.0.2")
    strangers: list[_Streams] = []
    for _ in range(3 * _MOST):
        strangers.append(await _connect(server, closed_later, "127.0.0.3"))
        await until(lambda: 0 < _waiting() <= _MOST, "the bound holds")
    ended, kept = strangers[: 1 - _MOST], strangers[1 - _MOST :]
    async with asyncio.timeout(PATIENCE_S):
        assert [await reader.read() for reader, _ in ended] == [b""] * len(ended)
    assert not any(reader.at_eof() for reader, _ in (other, *kept))


async def test_half_of_a_body_waits_too(server: RunningServer, closed_later: ExitStack) -> None:
    """Requests whose bodies do not end are as few as connections without a request."""
    strangers: list[_Streams] = []
    for _ in range(3 * _MOST):
        strangers.append(await _connect(server, closed_later, "127.0.0.3"))
        strangers[-1][1].write(
            b"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"
        )
        await until(lambda: 0 < _waiting() <= _MOST, "the bound holds")
    async with asyncio.timeout(PATIENCE_S):
        for reader, _ in strangers[:-_MOST]:
            assert await reader.read() == b""
    held = server.state.held
    await until(lambda: held.total() <= _MOST * 1_000, "what they have sent is given back")


async def test_a_connection_with_a_request_does_not_wait(
    server: RunningServer, closed_later: ExitStack
) -> None:
    """Strangers end no call; after its answer a connection waits again, and may be ended."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    address, verify = server.url, trusting if server.url.startswith("https") else True
    body = {"input": "Hello my friend. " * 200, "language": "en", "response_format": "pcm"}
    async with httpx.AsyncClient(base_url=address, verify=verify) as http:
        async with http.stream("POST", "/v1/audio/speech", json=body) as answer:
            assert not _waiting()
            for _ in range(3 * _MOST):
                await _connect(server, closed_later, "127.0.0.3")
            await until(lambda: _waiting() == _MOST, "the strangers are accepted")
            audio = await answer.aread()
        assert len(audio) > 1_000_000
        assert 0 < _waiting() <= _MOST  # strangers who have waited too long are gone by now


async def test_connections_that_close_do_not_count(
    server: RunningServer, closed_later: ExitStack
) -> None:
    """Whoever closes them: the client, or the server."""
    for _ in range(_MOST):
        _, writer = await _connect(server, closed_later, "127.0.0.3")
        writer.close()
    await until(lambda: not _waiting(), "all are closed")


async def test_a_socket_whose_handshake_came_with_a_request_does_not_wait(
    start_server: StartServer, closed_later: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read when that request has its answer; the time for a request no longer counts."""
    monkeypatch.setattr(connections, "REQUEST_S", 0.1)
    server = await start_server()
    reader, writer = await _connect(server, closed_later, "127.0.0.2")
    writer.write(
        b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"
        b"GET /v1/tts/ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    async with asyncio.timeout(PATIENCE_S):
        await reader.readuntil(b" 101 ")
        await reader.readuntil(b"\r\n\r\n")
        assert not _waiting()
        for _ in range(3):
            silent, _ = await _connect(server, closed_later, "127.0.0.3")
            assert await silent.read() == b""
        socket = RawWebSocket(reader, writer)
        await socket.send(frame(PING))
        while (await socket.receive())[0] != PONG:
            pass
