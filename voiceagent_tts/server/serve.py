"""Runs the app with uvicorn, and ends it gently.

Stock uvicorn cuts every socket 0.03 s after SIGTERM. Here the signal starts a drain: readiness
goes, sockets are told, no new context opens, and those that speak may finish within `drain_s`.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from voiceagent_tts.config import Settings
from voiceagent_tts.server.app import create_app
from voiceagent_tts.server.state import CLOSE_GRACE_S, ServerState

MAX_MESSAGE_BYTES = 1 << 20
_SEND_BUFFER_BYTES = 64 * 1024


class SocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, which can also be closed while nobody reads it.

    An ordinary close waits for room in the send buffer, which a client that never reads never
    makes, so that its socket would stay for ever.
    """

    def handle_connect(self, event: Any) -> None:
        """Offer `close_now` to the app beside the extensions of the handshake."""
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions: dict[str, Any] = self.scope["extensions"]  # type: ignore[assignment]
            extensions["voiceagent_tts.close_now"] = self.close_now

    async def send(self, message: Any) -> None:
        """Send a message of the app, to whom a socket closed beneath it is a client that left."""
        await self.writable.wait()
        is_closed = self.close_sent or self.transport.is_closing()
        if is_closed and self.handshake_complete:
            raise ClientDisconnected
        await super().send(message)

    def close_now(self, code: int, reason: str) -> None:
        """Send a close frame behind what is buffered; abort where it is not taken soon."""
        if self.close_sent or self.transport.is_closing():
            self.transport.abort()
            return
        self.conn.send_close(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.writable.set()
        self.loop.call_later(CLOSE_GRACE_S, self.transport.abort)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: ours drain first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals to `serve`."""
        yield


def listen(host: str, port: int, slow_consumer_s: float) -> socket.socket:
    """A listening socket whose connections buffer little in the kernel, and not for ever.

    Loopback otherwise takes more than a minute of PCM before a send waits, and a barge-in would
    find it all on its way. A body that nobody reads would hold its row as long as its client
    lives: Linux aborts such a connection, a little after a WebSocket has been told why (4008).

    Raises:
        OSError: the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted sockets inherit these options.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        unread_ms = round((slow_consumer_s + CLOSE_GRACE_S) * 1000)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unread_ms)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    return listener


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that speaks; `url` is its `http://` address."""

    url: str
    state: ServerState
    uvicorn_server: uvicorn.Server
    serving: "asyncio.Task[None]"

    @property
    def websocket_url(self) -> str:
        """Address of `tts.v1`."""
        return f"ws{self.url.removeprefix('http')}/v1/tts/ws"

    async def drain(self, is_hurried: Callable[[], bool] = lambda: False) -> None:
        """Let open contexts finish for `drain_s`, unless `is_hurried`, and close the sockets."""
        await self.state.drain(self.state.settings.drain_s, is_hurried)


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[RunningServer]:
    """A server in this event loop, ended with the block.

    Raises:
        OSError: the address cannot be bound.
        EngineError: the engine cannot start.
    """
    state = ServerState(settings)
    listener = listen(settings.host, settings.port, settings.slow_consumer_s)
    host, port = listener.getsockname()[:2]
    server = _Server(_uvicorn_config(settings, state))
    try:
        await state.start()
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        try:
            yield RunningServer(url, state, server, serving)
        finally:
            await state.drain(0)
            server.should_exit = True
            await serving
    finally:
        await state.close()
        listener.close()


async def serve(
    settings: Settings, on_ready: Callable[[RunningServer], None] = lambda server: None
) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends the drain.

    A signal that comes while the engine starts, which may take minutes, ends that.

    Args:
        settings: where and how.
        on_ready: told once the server speaks.

    Raises:
        OSError: the address cannot be bound.
        EngineError: the engine cannot start.
    """
    ending, hurried = asyncio.Event(), asyncio.Event()

    def end() -> None:
        (hurried if ending.is_set() else ending).set()

    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, end)
    ended = asyncio.create_task(ending.wait())
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(ended.cancel)
        starting = asyncio.create_task(stack.enter_async_context(running(settings)))
        try:
            await asyncio.wait({starting, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            starting.cancel()  # which changes nothing where it is done
        await asyncio.wait({starting})
        if starting.cancelled():
            return
        server = starting.result()
        on_ready(server)
        await asyncio.wait({server.serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        await server.drain(hurried.is_set)


def _uvicorn_config(settings: Settings, state: ServerState) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(state),
        ws=SocketProtocol,
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_ping_interval=settings.ping_interval_s,
        ws_ping_timeout=settings.ping_interval_s,
        ws_per_message_deflate=False,  # 55 µs for 3 % of a PCM message, and twice the memory
        lifespan="off",  # `running` starts and ends the state, so that errors reach its caller
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
    )
