"""The only writer of one socket: sends answers first, then the contexts' messages in turn."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import structlog
from fastapi import WebSocket, WebSocketDisconnect

from voiceagent_tts.server.context_writer import Outgoing
from voiceagent_tts.server.state import ServerState

if TYPE_CHECKING:
    from voiceagent_tts.server.socket_context import SocketContext

_MAX_ANSWERS = 256
_log = structlog.get_logger(__name__)


class SocketWriter:
    """Sends what one socket has to send, from one task, until the socket is closed.

    Each context that has something to send gets one message per turn, so that contexts share the
    socket evenly. In a sequential dialect only the oldest context speaks.

    Args:
        websocket: an accepted WebSocket.
        state: what all routes share.
        session_id: for the log.
        is_sequential: whether contexts speak one after the other.
        on_over: called with each context whose `done` is being sent.
    """

    def __init__(
        self,
        websocket: WebSocket,
        state: ServerState,
        session_id: str,
        *,
        is_sequential: bool,
        on_over: "Callable[[SocketContext], None]",
    ) -> None:
        self.contexts: dict[str, SocketContext] = {}
        """The contexts whose `done` has not been sent, oldest first."""
        self._websocket = websocket
        self._state = state
        self._session_id = session_id
        self._is_sequential = is_sequential
        self._on_over = on_over
        self._answers: deque[str | bytes] = deque()
        self._ready: deque[str] = deque()  # contexts with something to send, each once
        self._closing: tuple[int, str] | None = None
        self._has_work = asyncio.Event()
        self._has_room = asyncio.Event()

    def answer(self, messages: Iterable[str | bytes]) -> None:
        """Send `messages` before the messages of the contexts."""
        self._answers.extend(messages)
        self._has_work.set()

    def mark_ready(self, context_id: str) -> None:
        """Note that a context has something to send."""
        if context_id not in self._ready:
            self._ready.append(context_id)
        self._has_work.set()

    def close(self, code: int, reason: str) -> None:
        """Close the socket when the answers that wait have been sent."""
        self._closing = (code, reason)
        self._has_work.set()

    def close_now(self, code: int, reason: str) -> None:
        """Close without waiting for a client that may not read."""
        close_now: Callable[[int, str], None]
        close_now = self._websocket.scope["extensions"]["voiceagent_tts.close_now"]
        close_now(code, reason)

    @property
    def queued_bytes(self) -> int:
        """Bytes of audio and messages that wait to be sent, or for the client to read them."""
        buffered_bytes: Callable[[], int]
        buffered_bytes = self._websocket.scope["extensions"]["voiceagent_tts.buffered_bytes"]
        return buffered_bytes() + sum(each.queued_bytes for each in self.contexts.values())

    async def wait_for_room(self) -> None:
        """Wait while too many answers are unsent: the client does not read them."""
        while len(self._answers) > _MAX_ANSWERS:
            self._has_room.clear()
            await self._has_room.wait()

    async def run(self) -> None:
        """Send until the socket is closed.

        Raises:
            WebSocketDisconnect: the client left, or did not read and was closed with 4008.
        """
        while True:
            self._has_work.clear()
            while self._answers or (self._ready and self._closing is None):
                if self._answers:
                    await self._send(Outgoing([self._answers.popleft()]))
                    self._has_room.set()
                elif outgoing := self._next_of_contexts():
                    await self._send(outgoing)
                    if self._ready:
                        await asyncio.sleep(0)  # sockets that read fast would keep others waiting
            if self._closing is not None:
                await self._websocket.close(*self._closing)
                return
            await self._has_work.wait()

    def _next_of_contexts(self) -> Outgoing | None:
        """One message of the context whose turn it is."""
        context_id = self._ready.popleft()
        context = self.contexts.get(context_id)
        if context is None or not self._may_speak(context_id):
            return None
        outgoing = context.next_message()
        if context.done is not None:
            self.remove(context_id)
        elif outgoing is not None:
            self.mark_ready(context_id)
        return outgoing

    def remove(self, context_id: str) -> None:
        """Remove a context whose `done` is being sent."""
        self._on_over(self.contexts.pop(context_id))
        if self._is_sequential and self.contexts:
            self.mark_ready(next(iter(self.contexts)))

    def _may_speak(self, context_id: str) -> bool:
        return not self._is_sequential or context_id == next(iter(self.contexts))

    async def _send(self, outgoing: Outgoing) -> None:
        try:
            async with asyncio.timeout(self._state.settings.slow_consumer_s):
                for message in outgoing.messages:
                    if isinstance(message, str):
                        await self._websocket.send_text(message)
                    else:
                        await self._websocket.send_bytes(message)
        except TimeoutError:
            self._state.metrics.slow_consumers.inc()
            _log.warning("slow_consumer", session_id=self._session_id)
            self.close_now(4008, "slow consumer: nothing was read")
            raise WebSocketDisconnect(4008) from None
        outgoing.on_sent()
