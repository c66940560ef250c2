"""What each transport of the one client does with connections, on real sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from websockets.asyncio.server import ServerConnection as WebSocket
from websockets.asyncio.server import serve
from websockets.typing import Subprotocol

from testbed.waiting import PATIENCE_S
from voiceagent_tts.adapters.livekit import plugin as aiohttp_transport
from voiceagent_tts.client import ClientSocket, socket, transport
from voiceagent_tts.errors import ConnectionLostError, ErrorCode, OverloadedError
from voiceagent_tts.protocol.messages import SUBPROTOCOL, SessionLimits
from voiceagent_tts.protocol.server_connection import ServerConnection

LIMITS = SessionLimits(
    max_text_chars=8_192, context_idle_s=120, max_audio_s=600, max_lead_s=8, max_contexts=4
)
Connect = Callable[[str], Awaitable[transport.Transport]]


@pytest.fixture(params=["websockets", "aiohttp"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Return a function that connects by one of the libraries."""
    async with aiohttp.ClientSession(trust_env=True) as session:
        if request.param == "websockets":
            yield lambda url: transport.connect_websocket(url, {})
        else:
            yield lambda url: aiohttp_transport.connect_websocket(session, url, {}, 15.0)


class Server:
    """A server that accepts sockets, sends `ready` and reads what comes."""

    def __init__(self) -> None:
        self.connection = ServerConnection(LIMITS)
        self.accepted: asyncio.Queue[WebSocket] = asyncio.Queue()
        self.url = ""

    async def serve(self, websocket: WebSocket) -> None:
        """Serve a socket until it closes."""
        await websocket.send(*self.connection.ready(session_id="s", model="m"))
        self.accepted.put_nowait(websocket)
        async for _ in websocket:
            pass


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A running server."""
    made = Server()
    options = {"subprotocols": [Subprotocol(SUBPROTOCOL)], "close_timeout": 0.1}
    async with serve(made.serve, "127.0.0.1", 0, **options) as running:
        made.url = f"ws://127.0.0.1:{next(iter(running.sockets)).getsockname()[1]}"
        yield made


async def _filled(connect: Connect, server: Server) -> tuple[ClientSocket, WebSocket]:
    """A socket with more to send than its server, which does not read, can take."""
    client = await ClientSocket.over(await connect(server.url))
    websocket = await server.accepted.get()
    websocket.transport.pause_reading()
    for _ in range(256):
        client.send("x" * 2**16)
    return client, websocket


async def test_what_is_sent_waits_while_the_connection_is_full(
    connect: Connect, server: Server
) -> None:
    """A program that sends faster than the server reads is held back, and loses nothing."""
    client, websocket = await _filled(connect, server)
    draining = asyncio.create_task(client.drain())
    done, _ = await asyncio.wait({draining}, timeout=0.05)
    assert not done
    websocket.transport.resume_reading()
    await asyncio.wait_for(draining, PATIENCE_S)
    await client.aclose()


async def test_a_server_that_stops_reading_is_lost(
    connect: Connect, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A send is limited in time, and so is closing such a connection."""
    monkeypatch.setattr(socket, "_SEND_TIMEOUT_S", 0.05)
    for module in (transport, aiohttp_transport):
        monkeypatch.setattr(module, "CLOSE_TIMEOUT_S", 0.05)
    client, websocket = await _filled(connect, server)
    with pytest.raises(ConnectionLostError, match="stopped reading"):
        await asyncio.wait_for(client.drain(), PATIENCE_S)
    assert client.lost and not client.is_usable
    client.give_up("again")  # does not disturb the closing
    await asyncio.wait_for(client.aclose(), PATIENCE_S)
    websocket.transport.resume_reading()
    await websocket.wait_closed()


@pytest.mark.parametrize("is_told_late", [False, True])
async def test_a_socket_that_drains_is_left_at_once(
    connect: Connect, server: Server, is_told_late: bool
) -> None:
    """Its owner hears of that once, although a context still speaks, and again of the loss."""
    unusable: asyncio.Queue[bool] = asyncio.Queue()
    client = await ClientSocket.over(
        await connect(server.url), lambda client: unusable.put_nowait(bool(client.lost))
    )
    websocket = await server.accepted.get()
    client.open("speaks", lambda _: None)
    refusal = OverloadedError("no more", code=ErrorCode.DRAINING)
    if is_told_late:  # the refusal of a context may be the first sign
        await websocket.send(*server.connection.error(refusal, None))
    await websocket.send(*server.connection.draining(deadline_ms=30_000))
    assert not await asyncio.wait_for(unusable.get(), PATIENCE_S)
    client.abandon("speaks")
    await client.aclose()
    assert unusable.get_nowait() and unusable.empty()


async def test_an_idle_socket_that_drains_is_closed_in_order(
    connect: Connect, server: Server
) -> None:
    """The client closes it, and does not call that a broken connection."""
    losses: asyncio.Queue[ConnectionLostError | None] = asyncio.Queue()
    client = await ClientSocket.over(
        await connect(server.url), lambda client: losses.put_nowait(client.lost)
    )
    websocket = await server.accepted.get()
    await websocket.send(*server.connection.draining(deadline_ms=30_000))
    assert await asyncio.wait_for(losses.get(), PATIENCE_S) is None
    loss = await asyncio.wait_for(losses.get(), PATIENCE_S)
    assert loss and "1000, normal" in loss.message
    await client.aclose()
    assert websocket.close_code == 1000


async def test_a_server_that_closes_before_ready_is_lost(connect: Connect) -> None:
    """The error names the close code."""

    async def close(websocket: WebSocket) -> None:
        await websocket.close(1013)

    async with serve(close, "127.0.0.1", 0, subprotocols=[Subprotocol(SUBPROTOCOL)]) as running:
        port = next(iter(running.sockets)).getsockname()[1]
        connected = await connect(f"ws://127.0.0.1:{port}")
        with pytest.raises(ConnectionLostError, match=r"no ready from the server.*1013"):
            await ClientSocket.over(connected)


async def test_the_environments_proxy_is_used(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a server that only the proxy knows reaches the proxy."""
    heads: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        for name in ("http_proxy", "https_proxy", "ws_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with pytest.raises(Exception):  # noqa: B017
            await connect("ws://speech.invalid:8765/v1/tts/ws")
    assert b"speech.invalid:8765" in heads.get_nowait().splitlines()[0]
