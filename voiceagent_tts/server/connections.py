"""uvicorn's HTTP and WebSocket, with limits on what a connection without a key can take.

The limits are here because not every server has a proxy in front of it; see
`docs/decisions/0046-a-server-without-a-proxy-has-limits-of-its-own.md`.
"""

import asyncio
import errno
import os
import resource
import socket
from collections import Counter
from contextlib import suppress
from http import HTTPStatus
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from voiceagent_tts.server.auth import owner_of
from voiceagent_tts.server.callers import network_of
from voiceagent_tts.server.state import CLOSE_GRACE_S
from voiceagent_tts.synthesizer.segments import Turns

REQUEST_S = 10.0  # time in which a new connection sends the headers of a request
MAX_HEAD_BYTES = 16 * 1024  # of headers that have not ended, also of those after a body
_MAX_HEAD_LINES = 256
_MAX_DISCARDED_BYTES = 32 << 20  # the largest body that a route accepts
_MAX_FRAGMENTS = 1024
_UNFINISHED_BYTES = 128 * 1024
"""Size of an incomplete message that every socket may have: twice the largest legal message."""
_MAX_UNFINISHED = 32
"""Number of sockets that may exceed it at the same time, each with up to 640 KiB."""
_RESERVED_FILES = 64  # left by connections for workers, uploads and logs
_MAX_WAITING = 1_000
"""Number of connections without a complete request, each of up to 94 kB; at most a quarter of the
open files."""
_READ_BYTES = 8 * 1024
"""Bytes read from a connection in one iteration of the event loop: a thousand of the smallest
messages take 2 ms. asyncio would read 32 times as much."""
_TURN_BYTES = 256 * 1024
"""Bytes of all connections that are worked on in one iteration of the event loop, and some more."""
_REQUEST_BYTES = _TURN_BYTES  # cost of a piece that may be a request, or end its body: 2 to 5 ms
_PIECE_BYTES = 64 * 1024  # cost of a piece in addition to its size: it may be 1,300 messages, 4 ms
_MESSAGE_BYTES = 8 * 1024  # cost of a message in addition to its size: 0.1 ms
_MESSAGE_WEIGHT = 4  # parsing a lexicon takes longer than reading it: 3 ms for 10 kB


_waiting: dict[int, tuple[socket.socket, str]] = {}
"""Connections without a complete request and the networks of their clients, by file number; the
oldest first. Closed ones are dropped when there are too many."""


def _wait(connection: socket.socket) -> None:
    """Note that a connection waits for more of a request, and end another one if too many do.

    The network with the most of them loses its oldest, so that a flood ends its own connections
    alone. Behind a proxy, where all clients share an address, the oldest of all is ended.
    """
    _waiting.pop(connection.fileno(), None)
    with suppress(OSError, IndexError):  # its client has gone, or is on a Unix socket
        _waiting[connection.fileno()] = connection, network_of(connection.getpeername()[0])
    most = min(_MAX_WAITING, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
    if len(_waiting) > most:
        for file in [each for each in _waiting if _waiting[each][0].fileno() < 0]:
            del _waiting[file]
        if len(_waiting) > most:
            _end_one_waiting()


def _end_one_waiting() -> None:
    (most, _) = Counter(network for _, network in _waiting.values()).most_common(1)[0]
    file = next(file for file, (_, network) in _waiting.items() if network == most)
    with suppress(OSError):  # its client has closed it
        _waiting.pop(file)[0].shutdown(socket.SHUT_RDWR)


class Listener(socket.socket):
    """A listening socket; its connections count as waiting from before a TLS handshake."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        connection, address = super().accept()
        _wait(connection)
        return connection, address


class _LoopTurns:
    """Limits the work of all connections in one iteration of an event loop.

    Thousands may send at once. The synthesizer limits what their messages ask for.
    """

    def __init__(self) -> None:
        self.reads = Turns(_TURN_BYTES)
        self.messages = Turns(_TURN_BYTES)  # whole ones, of sockets
        self.handshakes = Turns()  # of sockets, one in each iteration: 2 ms


_turns_of: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopTurns] = WeakKeyDictionary()


class _Paced(asyncio.Protocol):
    """A connection that works on what it has read when it is its turn, and then reads on."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    client: tuple[str, int] | None
    _owner = ""  # whose turns it takes: of its client's network, or later of its key
    _unread = b""
    _most_bytes = _READ_BYTES  # that are worked on at once

    @property
    def _is_reading_paused(self) -> bool:  # by uvicorn
        raise NotImplementedError

    def _cost_bytes(self, size_bytes: int) -> int:
        return _PIECE_BYTES + size_bytes

    def _work_on(self, data: bytes) -> None:
        raise NotImplementedError

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start reading, in small pieces where the transport of asyncio has an attribute for it."""
        super().connection_made(transport)
        if hasattr(transport, "max_size"):
            transport.max_size = _READ_BYTES  # type: ignore[attr-defined]
        self._turns = _turns_of.setdefault(self.loop, _LoopTurns())
        self._owner = network_of(self.client[0]) if self.client else ""

    def data_received(self, data: bytes) -> None:
        is_first, self._unread = not self._unread, self._unread + data
        if is_first:
            self._read_in_turn()
        self._pause()

    def _read_in_turn(self) -> None:
        cost_bytes = self._cost_bytes(min(self._most_bytes, len(self._unread)))
        self._turns.reads.take(self._owner, self._read, cost_bytes)

    def _pause(self) -> None:
        if self._unread:
            self.transport.pause_reading()

    def _read(self) -> None:
        data, self._unread = self._unread[: self._most_bytes], self._unread[self._most_bytes :]
        if self.transport.is_closing():
            return
        try:
            self._work_on(data)
        except BaseException:  # as asyncio does where it calls this itself
            self.transport.abort()
            raise
        protocol = self.transport.get_protocol()  # after a handshake, that of the socket
        if self._unread:  # TLS reads more at once
            self._read_in_turn()
        elif isinstance(protocol, _Paced) and not (protocol._unread or protocol._is_reading_paused):
            self.transport.resume_reading()


class RequestProtocol(_Paced, H11Protocol):
    """uvicorn's HTTP, with limits on the time and the size of a request.

    uvicorn has neither: a client without a key could fill the memory, or use all open files.
    """

    _head_lines = 0
    _discarded_bytes = 0  # read of a body that was refused
    _is_overdue = False  # its time has passed, but unread bytes may complete a request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request; abort where open files are short."""
        super().connection_made(transport)
        self._wait_for_request()
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if transport.get_extra_info("socket").fileno() >= limit - _RESERVED_FILES:  # lowest free
            error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            self.loop.call_exception_handler(
                {"message": "refused a connection", "exception": error}
            )
            self.transport.abort()

    @property
    def _is_reading_paused(self) -> bool:
        return self.flow.read_paused

    def _work_on(self, data: bytes) -> None:
        """Pass bytes to h11, which limits the headers; count the bytes that no request needs."""
        before = self.cycle
        if (before is None or before.response_complete) and self._has_too_much(data):
            self.transport.close()
            return
        H11Protocol.data_received(self, data)
        if self.transport.get_protocol() is not self:
            self._leave_to_socket()
        elif self.conn.their_state is h11.SEND_BODY:
            has_chunks = any(name == b"transfer-encoding" for name, _ in self.headers)
            self._most_bytes = _READ_BYTES // 2 if has_chunks else _READ_BYTES  # of a byte, perhaps
            _wait(self.transport.get_extra_info("socket"))
        elif self.conn.their_state is not h11.IDLE:
            _waiting.pop(self.transport.get_extra_info("socket").fileno(), None)
        if self.cycle is not before:
            self._head_lines = self._discarded_bytes = 0
            self._is_overdue = False
        elif self._is_overdue and not self._unread:
            self.transport.close()

    def _cost_bytes(self, size_bytes: int) -> int:
        """The size of a piece of a body; more for one that may be the last, or is no body's."""
        is_part = self.conn.their_state is h11.SEND_BODY and size_bytes == _READ_BYTES
        return size_bytes if is_part else _REQUEST_BYTES

    def _leave_to_socket(self) -> None:
        """Stop waiting for a request: the connection is a WebSocket now."""
        self._unread = b""  # its client waits for the handshake's answer, and has sent nothing else
        self._is_overdue = False
        self._timer.cancel()  # it would keep this in memory
        _waiting.pop(self.transport.get_extra_info("socket").fileno(), None)

    def _has_too_much(self, data: bytes) -> bool:
        """Count bytes of a body that was refused, or lines of headers, before they are parsed."""
        if self.conn.their_state is h11.SEND_BODY:
            self._discarded_bytes += len(data)
        else:
            self._head_lines += data.partition(b"\r\n\r\n")[0].count(b"\n")
        return self._head_lines > _MAX_HEAD_LINES or self._discarded_bytes > _MAX_DISCARDED_BYTES

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; close if its request has been answered already."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may have come already and be a handshake."""
        if not self.transport.is_closing():
            _wait(self.transport.get_extra_info("socket"))
        super().on_response_complete()
        if not self.transport.is_closing() and self.transport.get_protocol() is not self:
            self._leave_to_socket()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer, which would keep the connection in memory."""
        super().connection_lost(exc)
        self._timer.cancel()

    def _wait_for_request(self) -> None:
        self._timer = self.loop.call_later(REQUEST_S, self._end_if_silent, self.cycle)

    def _end_if_silent(self, last: object) -> None:
        if self.transport.is_closing():
            return
        has_none = self.cycle is last and (last is None or self.cycle.response_complete)
        if has_none and not self._unread:
            self.transport.close()
        else:
            self._is_overdue = has_none
            self._wait_for_request()


class SocketProtocol(_Paced, WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, which can also be closed while the client does not read.

    An ordinary close waits for room in the send buffer. A client that never reads never makes
    room, so its socket would stay open forever.
    """

    _is_broken = False
    _late_pong = b""
    _unfinished: "ClassVar[set[SocketProtocol]]" = set()
    """The sockets with a large message that has not ended."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Shorten the wait for a client that does not answer a close."""
        super().connection_made(transport)
        self.close_timeout = CLOSE_GRACE_S

    def handle_connect(self, event: Any) -> None:
        """Add `close_now` and `buffered_bytes` to the extensions that the app can use."""
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions: dict[str, Any] = self.scope["extensions"]  # type: ignore[assignment]
            scope: Any = self.scope
            scope["headers"] = [[*header] for header in scope["headers"]]
            extensions["voiceagent_tts.close_now"] = self.close_now
            extensions["voiceagent_tts.buffered_bytes"] = self.transport.get_write_buffer_size

    async def run_asgi(self) -> None:
        """Run the app, and remove what it was given of this object: the two would form a cycle."""
        try:
            await super().run_asgi()
        finally:
            extensions: dict[str, Any] = self.scope["extensions"]  # type: ignore[assignment]
            extensions.clear()

    def handle_cont(self, event: Any) -> None:
        """Add a fragment to a message; its size alone does not limit the number of empty ones."""
        if len(self.frames) >= _MAX_FRAGMENTS:
            self._close_as_broken(1009, f"expected at most {_MAX_FRAGMENTS} fragments")
            return
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """Pass a message to the app; uvicorn would log a traceback for text that is not UTF-8."""
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
        """Resume sending, and answer the latest ping that arrived meanwhile."""
        super().resume_writing()
        late_pong, self._late_pong = self._late_pong, b""
        if late_pong and not self._is_broken:
            self.transport.write(late_pong)

    @property
    def _is_reading_paused(self) -> bool:
        return self.read_paused

    def _work_on(self, data: bytes) -> None:
        """Discard what comes after a broken frame, and refuse a handshake that cannot be read."""
        if self._is_broken:
            return
        WebSocketsSansIOProtocol.data_received(self, data)
        if self.conn.handshake_exc is not None and not self.handshake_complete:
            self._refuse_handshake()
        self._limit_unfinished()

    def _limit_unfinished(self) -> None:
        """Close a socket whose message grows too large while many others have such a message."""
        unfinished_bytes = len(self.conn.reader.buffer) + sum(map(len, self.frames))
        if self._is_broken or unfinished_bytes <= _UNFINISHED_BYTES:
            self._unfinished.discard(self)
        elif self in self._unfinished or len(self._unfinished) < _MAX_UNFINISHED:
            self._unfinished.add(self)
        else:
            self._close_as_broken(1009, f"expected at most {_UNFINISHED_BYTES} bytes in a message")

    def connection_lost(self, exc: Exception | None) -> None:
        """Release its parser and what that has read: the two would form a cycle."""
        self._unfinished.discard(self)
        super().connection_lost(exc)
        self.conn.parser.close()

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

    async def receive(self) -> Any:
        """Pass a message of the client to the app when it is its turn."""
        message: Any = await super().receive()
        self._pause()
        if message["type"] == "websocket.connect":
            await self._turns.handshakes.wait(self._owner)
        else:
            size_bytes = len(message.get("text") or message.get("bytes") or "")
            cost_bytes = _MESSAGE_BYTES + _MESSAGE_WEIGHT * size_bytes
            await self._turns.messages.wait(self._owner, cost_bytes)
        return message

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
        if hasattr(self, "request"):
            self._forget_handshake()

    def _forget_handshake(self) -> None:
        """Free the handshake once its caller was checked; only the owner of the socket is kept.

        Starlette keeps lists of the headers, so each of these is emptied.
        """
        scope: Any = self.scope
        if owner := owner_of(scope):
            self._owner = owner
            del self.request, self.response
            for header in scope["headers"]:
                header[:] = b"", b""

    def close_now(self, code: int, reason: str) -> None:
        """Send a close frame after the buffered data; abort if the client does not read it soon."""
        if self.close_sent or self.transport.is_closing():
            self.transport.abort()
            return
        self.conn.send_close(code, reason)
        self._end(code, reason)

    def _end(self, code: int, reason: str) -> None:
        """Notify the app, write the close frame, and read until the client has closed its side.

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
