"""Runs the app with uvicorn, and drains it before it ends.

Stock uvicorn closes every socket 0.03 s after SIGTERM. Here the signal starts a drain: the server
is no longer ready, sends `draining` to its sockets, refuses new contexts, and lets open contexts
finish within `drain_s`.
"""

import asyncio
import contextlib
import errno
import gc
import ipaddress
import resource
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog
import uvicorn

from voiceagent_tts.config import Settings
from voiceagent_tts.errors import InvalidRequestError, VoiceAgentError
from voiceagent_tts.garbage import collect_rarely, give_back_memory, map_large_blocks
from voiceagent_tts.hooks import plugin_modules
from voiceagent_tts.server.app import create_app
from voiceagent_tts.server.connections import (
    MAX_HEAD_BYTES,
    Listener,
    RequestProtocol,
    SocketProtocol,
)
from voiceagent_tts.server.error_answers import log_if_unexpected
from voiceagent_tts.server.state import CLOSE_GRACE_S, SLOW_CONSUMER_S, ServerState

MAX_READ_BYTES = 640 << 10
"""Maximum size of a message that is read, to be refused by the protocol: a text of 100,000
characters, each of them escaped."""
PING_INTERVAL_S = 20.0  # time between keepalive pings, and for the answer
_SEND_BUFFER_BYTES = 64 * 1024
_GIVE_BACK_S = 20.0  # interval between attempts to return freed memory to the system
_FEW_SOCKETS = 100
"""Number of sockets up to which memory is returned: 0.15 ms for each would delay new contexts."""
_WAITING_CONNECTIONS = 2048
_ACCEPTED_AT_ONCE = 16
_MAX_OPEN_FILES = 65_536
"""Each socket and connection is an open file. Many systems permit 1,024 until a process asks for
more; some permit a billion, which would only cost memory."""
_WARNING_S = 1.0
_SWITCH_INTERVAL_S = 0.0005
"""Longest wait of the event loop for a thread that computes in Python, such as one that marks a
file. The default is 5 ms each time that the loop wakes, several times for one message."""

_log = structlog.get_logger(__name__)


class Certificate(Protocol):
    """The certificate of a server that ends TLS itself; from a plugin."""

    certfile: Path  # file of the certificate, in PEM form
    keyfile: Path | None  # file of its key; None if it is in `certfile`

    def kept_current(self, context: ssl.SSLContext) -> AbstractAsyncContextManager[None]:
        """Read the certificate again, within the block, whenever its files have changed."""
        ...


class _LoopFailures:
    """Exception handler of the event loop; warns once a second while open files are short.

    By default asyncio logs a traceback for each connection that it cannot accept. It also logs the
    messages of defects, which may quote the text.
    """

    def __init__(self) -> None:
        self._next_at = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, report: dict[str, Any]) -> None:
        error = report.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError | VoiceAgentError):
            log_if_unexpected(VoiceAgentError.wrapping(error))
        elif not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(report)
        elif loop.time() >= self._next_at:
            self._next_at = loop.time() + _WARNING_S
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            _log.warning("open_files_ran_out", problem=str(error), limit=limit)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: those of `serve` drain first."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Allow a long queue of connections, of which each iteration accepts few.

        asyncio has one number for both, and accepting 2,000 connections at once takes 0.16 s.
        """
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_WAITING_CONNECTIONS)

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
        InvalidRequestError: the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = Listener(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted sockets inherit these options.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        unread_ms = round((SLOW_CONSUMER_S + CLOSE_GRACE_S) * 1000)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unread_ms)
    try:
        listener.bind((host, port))
        listener.listen(_WAITING_CONNECTIONS)
    except OSError as error:
        listener.close()
        is_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
        remedy = "--port, or 0 for a free one" if is_port else "--host"
        raise InvalidRequestError(
            f"cannot bind {host}:{port} ({error.strerror}); choose another {remedy}"
        ) from error
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


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[RunningServer]:
    """Run a server in this event loop until the end of the block.

    Raises:
        EngineError: the engine cannot start.
        InvalidRequestError: the address, the certificate, the keys or Redis cannot be used.
        OverloadedError: the keys are in Redis, which cannot be reached.
    """
    certificate = _certificate_of(settings)
    async with contextlib.AsyncExitStack() as stack:
        listener = listen(settings.host, settings.port)
        stack.callback(listener.close)
        loop = asyncio.get_running_loop()
        stack.callback(loop.set_exception_handler, loop.get_exception_handler())
        loop.set_exception_handler(_LoopFailures())
        state = ServerState(settings)
        stack.push_async_callback(state.close)
        host, port = listener.getsockname()[:2]
        config = _uvicorn_config(settings, state, certificate)
        config.load()
        if certificate is not None and config.ssl is not None:
            await stack.enter_async_context(certificate.kept_current(config.ssl))
        server = _Server(config)
        await state.start()
        watching = asyncio.create_task(state.metrics.loop_lag.watch())
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


async def _give_back_memory(state: ServerState) -> None:
    """Return freed memory now and then while no context is open; loaded modules are frozen."""
    while True:
        await asyncio.sleep(_GIVE_BACK_S)
        if not state.synthesizer.contexts_active and len(state.sessions) <= _FEW_SOCKETS:
            give_back_memory()


def _certificate_of(settings: Settings) -> Certificate | None:
    if not settings.has_tls:
        return None
    for plugin in plugin_modules("certificates"):
        return plugin.certificate_of(settings)
    raise InvalidRequestError("expected no ssl settings on a server without the plugin tls")


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
    """Serve until SIGTERM, SIGINT or SIGHUP, then drain; a second signal ends the drain.

    A signal while the engine starts, which may take minutes, ends the start.
    """
    _permit_open_files()
    map_large_blocks()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    ending, hurried = asyncio.Event(), asyncio.Event()

    def end() -> None:
        (hurried if ending.is_set() else ending).set()

    loop = asyncio.get_running_loop()
    has_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    for number in (signal.SIGTERM, signal.SIGINT, *([] if has_nohup else [signal.SIGHUP])):
        loop.add_signal_handler(number, end)
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
        collect_rarely()
        giving_back = asyncio.create_task(_give_back_memory(server.state))
        stack.callback(giving_back.cancel)
        on_ready(server)
        await asyncio.wait({server.serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        await server.state.drain(settings.drain_s, hurried.is_set)


def _uvicorn_config(
    settings: Settings, state: ServerState, certificate: Certificate | None
) -> uvicorn.Config:
    from voiceagent_tts.server.proxies import Proxies

    return uvicorn.Config(
        Proxies(create_app(state), settings.trusted_proxies),
        http=RequestProtocol,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ws=SocketProtocol,
        ws_max_size=MAX_READ_BYTES,
        ws_ping_interval=PING_INTERVAL_S,
        ws_ping_timeout=PING_INTERVAL_S,
        ws_per_message_deflate=False,  # 55 µs for 3 % of a PCM message, and twice the memory
        backlog=_ACCEPTED_AT_ONCE,
        lifespan="off",  # `running` starts the state, so that errors reach its caller
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=round(CLOSE_GRACE_S),
        proxy_headers=False,  # `Proxies` reads them
        ssl_certfile=None if certificate is None else certificate.certfile,
        ssl_keyfile=None if certificate is None else certificate.keyfile,
    )
