"""Runs the app with uvicorn, and drains it before it ends.

Stock uvicorn closes every socket 0.03 s after SIGTERM. Here the signal starts a drain: the server
is no longer ready, sends `draining` to its sockets, refuses new contexts, and lets open contexts
finish within `drain_s`.
"""

import asyncio
import contextlib
import gc
import ipaddress
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from voiceagent_tts.config import Settings
from voiceagent_tts.server.app import create_app
from voiceagent_tts.server.metrics import LoopLag
from voiceagent_tts.server.state import CLOSE_GRACE_S, SLOW_CONSUMER_S, ServerState

if TYPE_CHECKING:
    from voiceagent_tts.server.tls import Certificate

MAX_MESSAGE_BYTES = 1 << 20
PING_INTERVAL_S = 20.0
"""Time between keepalive pings, and for the answer."""
REQUEST_S = 10.0
"""Time in which a new connection sends the headers of a request."""
_MAX_HEAD_BYTES = 64 * 1024
_MAX_DISCARDED_BYTES = 32 << 20
"""The largest body that a route accepts."""
_MAX_FRAGMENTS = 1024
_REQUEST_READ_BYTES = 32 * 1024
"""What is read of an HTTP connection in one turn: four thousand of the shortest headers."""
_READ_BYTES = 8 * 1024
"""What is read of a socket in one turn of the event loop: a thousand of the smallest messages take
2 ms. asyncio would read 32 times as much."""
_SEND_BUFFER_BYTES = 64 * 1024
_MAX_OPEN_FILES = 65_536
"""Each socket and connection is an open file. Many systems permit 1,024 until a process asks for
more; some permit a billion, which would only cost memory."""
_SWITCH_INTERVAL_S = 0.0005
"""How long the event loop may wait for a thread that computes in Python, such as one that marks a
file. By default it waits 5 ms each time that it wakes, and several times for one message."""


def _read_at_most(transport: asyncio.BaseTransport, size_bytes: int) -> None:
    """Limit what a transport reads at once, where asyncio's has an attribute for it."""
    if hasattr(transport, "max_size"):
        transport.max_size = size_bytes  # type: ignore[attr-defined]


class _RequestLimits(asyncio.Protocol):
    """Ends a connection whose request does not begin in time, or whose headers do not end.

    uvicorn limits neither: a client without a key could fill the memory, or have all open files.
    """

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    cycle: Any
    """The last request, which may be over; None before the first."""
    _head_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        _read_at_most(transport, _REQUEST_READ_BYTES)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        """Count what comes while there is no request."""
        before = self.cycle
        super().data_received(data)
        is_head = self.cycle is before and (before is None or before.response_complete)
        self._head_bytes = self._head_bytes + len(data) if is_head else 0
        # What is left of a body that was refused is read and discarded.
        is_body = before is not None and before.more_body
        if self._head_bytes > (_MAX_DISCARDED_BYTES if is_body else _MAX_HEAD_BYTES):
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer: the timer would keep the connection in memory."""
        super().connection_lost(exc)
        self._waiting.cancel()

    def _wait_for_request(self) -> None:
        self._waiting = self.loop.call_later(REQUEST_S, self._end_if_silent, self.cycle)

    def _end_if_silent(self, last: object) -> None:
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return  # it is over, or a WebSocket
        if self.cycle is last and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
        else:
            self._wait_for_request()


_RequestProtocol: type[asyncio.Protocol] = type(
    "_RequestProtocol", (_RequestLimits, AutoHTTPProtocol), {}
)
"""uvicorn's HTTP with these limits; which of its two kinds it is depends on what is installed."""


class SocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, which can also be closed while the client does not read.

    An ordinary close waits for room in the send buffer. A client that never reads never makes
    room, so its socket would stay open forever.
    """

    _is_broken = False
    _late_pong = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read little at once."""
        super().connection_made(transport)
        _read_at_most(transport, _READ_BYTES)

    def handle_connect(self, event: Any) -> None:
        """Add `close_now` and `buffered_bytes` to the extensions that the app can use."""
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions: dict[str, Any] = self.scope["extensions"]  # type: ignore[assignment]
            extensions["voiceagent_tts.close_now"] = self.close_now
            extensions["voiceagent_tts.buffered_bytes"] = self.transport.get_write_buffer_size

    def handle_cont(self, event: Any) -> None:
        """Collect a fragment of a message; the size alone would permit any number of empty ones."""
        if len(self.frames) >= _MAX_FRAGMENTS:
            self._close_as_broken(1009, f"expected at most {_MAX_FRAGMENTS} fragments")
            return
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """Give a whole message to the app; uvicorn would log a traceback for one without UTF-8."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            self.frames = [b"".join(self.frames)]
            try:
                self.frames[0].decode()
            except UnicodeDecodeError:
                self._close_as_broken(1007, "expected UTF-8")
                return
        super().send_receive_event_to_app()

    def handle_ping(self) -> None:
        """Answer a ping, unless the socket was closed by what came just before it.

        A client that sends pings and reads no pongs would fill the memory; RFC 6455 demands a pong
        for the latest ping only.
        """
        if self._is_broken:
            return
        pongs = self.conn.data_to_send()  # also those of other pings that came with this one
        if self.writable.is_set():
            self.transport.write(b"".join(pongs))
        elif pongs:
            self._late_pong = pongs[-1]

    def resume_writing(self) -> None:
        """Let the app send, and answer the latest ping that came meanwhile."""
        super().resume_writing()
        late_pong, self._late_pong = self._late_pong, b""
        if late_pong and not self._is_broken:
            self.transport.write(late_pong)

    def data_received(self, data: bytes) -> None:
        """Discard what comes after a broken frame, and refuse a handshake that cannot be read."""
        if self._is_broken:
            return
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_complete:
            self._refuse_handshake()

    def _refuse_handshake(self) -> None:
        """Answer a handshake that websockets does not parse; uvicorn would leave it open."""
        self.handshake_complete = self.close_sent = True
        refusal = self.conn.reject(
            HTTPStatus.BAD_REQUEST,
            "expected a WebSocket handshake without a body, with at most 128 headers, and with "
            "lines of at most 8,190 bytes",
        )
        self.transport.write(refusal.serialize())
        self.transport.close()

    def _close_as_broken(self, code: int, reason: str) -> None:
        self.frames = []
        if self._is_broken:  # by what came just before it
            return
        if self.conn.close_sent is None:  # the client's own close may have come with the message
            self.conn.send_close(code, reason)
        self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """Send the close frame, and discard what the client still sends."""
        if not self.handshake_complete:
            super().handle_parser_exception()
            return
        assert self.conn.close_sent is not None
        self._is_broken = True
        self.stop_keepalive()
        self._end(self.conn.close_sent.code, self.conn.close_sent.reason)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    async def send(self, message: Any) -> None:
        """Send a message of the app; report a socket that was closed meanwhile as a disconnect."""
        await self.writable.wait()
        is_closed = self.close_sent or self.transport.is_closing()
        if is_closed and self.handshake_complete:
            raise ClientDisconnected
        await super().send(message)
        if self.close_sent and not self.handshake_complete:
            # uvicorn would log an error for a handshake that the app has refused.
            self.handshake_complete = True

    def close_now(self, code: int, reason: str) -> None:
        """Send a close frame after the buffered data; abort if the client does not read it soon."""
        if self.close_sent or self.transport.is_closing():
            self.transport.abort()
            return
        self.conn.send_close(code, reason)
        self._end(code, reason)

    def _end(self, code: int, reason: str) -> None:
        """Tell the app, write the close frame, and read until the client has closed its side too.

        Without `close_timer` uvicorn would close the connection when the app ends. If bytes of the
        client are unread at that time, the kernel resets the connection, and the client may lose
        the close frame with its code. uvicorn cancels the timer when the connection is lost.
        """
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.writable.set()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_timer = self.loop.call_later(CLOSE_GRACE_S, self.transport.abort)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: those of `serve` drain first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals to `serve`."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket whose connections buffer little in the kernel, and not forever.

    Without this limit, loopback buffers more than a minute of PCM before a send waits, and a
    barge-in cannot take it back. A response body that the client does not read would occupy its
    row as long as the client lives; so Linux aborts such a connection, shortly after a WebSocket
    was closed with 4008.

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
        unread_ms = round((SLOW_CONSUMER_S + CLOSE_GRACE_S) * 1000)
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
    """A server that is ready; `url` is its `http://` or `https://` address on this machine."""

    url: str
    state: ServerState
    uvicorn_server: uvicorn.Server
    serving: "asyncio.Task[None]"

    @property
    def websocket_url(self) -> str:
        """Address of `tts.v1`."""
        return f"ws{self.url.removeprefix('http')}/v1/tts/ws"

    async def drain(self, is_hurried: Callable[[], bool] = lambda: False) -> None:
        """Let open contexts finish within `drain_s` unless `is_hurried`, then close the sockets."""
        await self.state.drain(self.state.settings.drain_s, is_hurried)


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[RunningServer]:
    """Run a server in this event loop until the end of the block.

    Raises:
        OSError: the address cannot be bound.
        EngineError: the engine cannot start.
        InvalidRequestError: the certificate, the keys or Redis cannot be used.
        OverloadedError: the keys are in Redis, which cannot be reached.
    """
    certificate = _certificate_of(settings)
    async with contextlib.AsyncExitStack() as stack:
        listener = listen(settings.host, settings.port)
        stack.callback(listener.close)
        state = ServerState(settings)
        stack.push_async_callback(state.close)
        host, port = listener.getsockname()[:2]
        config = _uvicorn_config(settings, state, certificate)
        config.load()
        if certificate is not None and config.ssl is not None:
            await stack.enter_async_context(certificate.kept_current(config.ssl))
        server = _Server(config)
        await state.start()
        loop_lag = LoopLag(state.metrics.loop_lag.observe)
        state.metrics.loop_stall.set_function(lambda: loop_lag.longest_s)
        watching = asyncio.create_task(loop_lag.watch())
        stack.callback(watching.cancel)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        scheme = "http" if certificate is None else "https"
        url = f"{scheme}://{_connectable(host)}:{port}"
        try:
            yield RunningServer(url, state, server, serving)
        finally:
            await state.drain(0)
            server.should_exit = True
            await serving


def _certificate_of(settings: Settings) -> "Certificate | None":
    if not settings.has_tls:
        return None
    from voiceagent_tts.server.tls import certificate_of  # here: few servers end TLS themselves

    return certificate_of(settings)


def _connectable(host: str) -> str:
    """The host of a URL that opens on this machine, for the numeric address of a listener."""
    if ipaddress.ip_address(host).is_unspecified:  # a listener on all addresses; no destination
        host = "::1" if ":" in host else "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _permit_open_files() -> None:
    """Raise this process's limit on open files, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


async def serve(
    settings: Settings, on_ready: Callable[[RunningServer], None] = lambda server: None
) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends the drain.

    A signal while the engine starts, which may take minutes, ends the start.

    Args:
        settings: the address, the engine and all limits.
        on_ready: called when the server is ready.

    Raises:
        OSError: the address cannot be bound.
        EngineError: the engine cannot start.
    """
    _permit_open_files()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
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
            starting.cancel()  # without effect if it is done
        await asyncio.wait({starting})
        if starting.cancelled():
            return
        server = starting.result()
        # What is loaded stays. A full collection that visits it stops the event loop for 0.1 s.
        gc.freeze()
        on_ready(server)
        await asyncio.wait({server.serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        await server.drain(hurried.is_set)


def _uvicorn_config(
    settings: Settings, state: ServerState, certificate: "Certificate | None"
) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(state),
        http=_RequestProtocol,
        ws=SocketProtocol,
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_ping_interval=PING_INTERVAL_S,
        ws_ping_timeout=PING_INTERVAL_S,
        ws_per_message_deflate=False,  # 55 µs for 3 % of a PCM message, and twice the memory
        lifespan="off",  # `running` starts the state, so that errors reach its caller
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        ssl_certfile=None if certificate is None else certificate.certfile,
        ssl_keyfile=None if certificate is None else certificate.keyfile,
    )
