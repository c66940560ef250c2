"""`SocketTTSService`: a Pipecat service with one `tts.v1` socket for the life of the pipeline.

Connects before the first turn, reconnects after a loss or when the server drains, and passes events
to `_receive_event`. Turns are handled in `speaking`.
"""

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from loguru import logger
from pipecat.frames.frames import ErrorFrame
from pipecat.processors.filters.function_filter import FunctionFilter
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.services.tts_service import WebsocketTTSService
from pipecat.services.websocket_service import ReportErrorCallback
from pipecat.utils.errors import ErrorCategory
from websockets.asyncio.client import ClientConnection as WebSocket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from voiceagent_tts.client import (
    MAX_SERVER_MESSAGE_BYTES,
    authorization,
    configured_key,
    configured_url,
    refusal,
    websocket_address,
)
from voiceagent_tts.client.spans import ClientSpans
from voiceagent_tts.errors import ConnectionLostError
from voiceagent_tts.protocol.client_connection import ClientConnection, ClientEvent
from voiceagent_tts.protocol.messages import SUBPROTOCOL, ErrorMessage
from voiceagent_tts.protocol.refusals import ProtocolError

_READY_TIMEOUT_S = 5.0
_SHORT_CONNECTION_S = 1.0
_RECONNECT_WAIT_S = 0.25


class SocketTTSService(WebsocketTTSService):
    """Connects to a server and stays connected.

    Args:
        url: the server; without a path, `/v1/tts/ws`.
        api_key: sent as a bearer token.
        extra_headers: further HTTP headers.
        reconnect_attempts: attempts, 0.25 s apart; after these, the next turn connects.
        **kwargs: arguments of `WebsocketTTSService`.

    Raises:
        InvalidRequestError: `url` is not the address of a server.
    """

    def __init__(
        self,
        *,
        url: str | None,
        api_key: str | None,
        extra_headers: Mapping[str, str] | None,
        reconnect_attempts: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._url = websocket_address(configured_url(url))
        self._api_key = configured_key(api_key)
        self._extra_headers = dict(extra_headers or {})
        self._reconnect_attempts = reconnect_attempts
        self._connection = ClientConnection()
        self._spans = ClientSpans()
        self._outbox: asyncio.Queue[str] = asyncio.Queue()
        self._writer: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()  # contexts can be opened
        self._received_at_s = 0.0
        self._outage: type[Exception] | None = None  # kind of error reported last
        self._tasks: list[asyncio.Task[None]] = []  # the reader first

    # Hooks that a subclass implements.

    @abstractmethod
    async def _receive_event(self, event: ClientEvent) -> None:
        """Handle an event that has arrived."""

    @abstractmethod
    async def _receive_loss(self, error: ConnectionLostError) -> None:
        """The socket is lost, and with it every context on it."""

    @abstractmethod
    async def _drop_turns(self) -> None:
        """The service disconnects permanently: stop speaking turns."""

    @property
    @abstractmethod
    def _is_speaking(self) -> bool:
        """Whether any context speaks on this socket."""

    @property
    @abstractmethod
    def _playout_end_s(self) -> float:
        """When the listener has heard all audio that has left the service."""

    @property
    @abstractmethod
    def _patience_s(self) -> float:
        """How long the listener waits in silence until a turn fails."""

    @property
    def _has_substitute(self) -> bool:
        """Whether Pipecat can fail over to another service: a switcher's filters are around us."""
        around = self.previous, self.next
        return all(isinstance(processor, FunctionFilter) for processor in around)

    def _send(self, message: str) -> None:
        """Send in order and without waiting; a message for a lost connection is dropped."""
        self._outbox.put_nowait(message)

    @property
    def _is_finishing(self) -> bool:
        """Whether a draining server still speaks; the service reconnects once it has finished."""
        return self._connection.is_draining and self._is_speaking

    def _now_s(self) -> float:
        return self.get_clock().get_time() / 1e9

    # Pipecat's connection hooks.

    async def setup(self, setup: FrameProcessorSetup) -> None:
        """Connect, so that the first turn finds an open socket."""
        await super().setup(setup)
        await self._connect()

    async def _connect(self) -> None:
        await super()._connect()
        try:
            await self._connect_websocket()
        except Exception as error:  # the reader tries again, and ends with a permanent error
            await self._report_outage(error)
        await self._cancel_tasks()
        self._tasks = [self.create_task(self._receive_task_handler(self._report_error))]

    async def _disconnect(self) -> None:
        await super()._disconnect()
        await self._cancel_tasks()
        await self._drop_turns()
        if self._websocket is not None:
            await self.stop_all_metrics()
        await self._disconnect_websocket()

    async def _cancel_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            await self.cancel_task(task)

    async def _connect_websocket(self) -> None:
        websocket = await self._websocket_connect(
            self._url,
            additional_headers=self._extra_headers | authorization(self._api_key),
            subprotocols=[SUBPROTOCOL],
            compression=None,
            max_size=MAX_SERVER_MESSAGE_BYTES,
        )
        connection = ClientConnection()
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                while connection.ready is None:
                    event = connection.receive(await websocket.recv())
                    if isinstance(event, ErrorMessage):
                        raise event.to_error()
        except BaseException:
            await websocket.close()
            raise
        self._websocket, self._connection = websocket, connection
        self._outbox, self._received_at_s = asyncio.Queue(), self._now_s()
        self._writer = self.create_task(self._write(websocket, self._outbox))
        self._is_ready.set()
        self._outage = None
        await self._call_event_handler("on_connected")

    async def _disconnect_websocket(self) -> None:
        websocket, self._websocket = self._websocket, None
        self._is_ready.clear()
        if self._writer is not None:
            await self.cancel_task(self._writer)
            self._writer = None
        if websocket is not None:
            await websocket.close()
            await self._call_event_handler("on_disconnected")

    async def _try_reconnect(
        self, max_retries: int = 3, report_error: ReportErrorCallback | None = None
    ) -> bool:
        # Pipecat's three attempts would give up on a server that takes seconds to restart, and end
        # the audio contexts, which this service resumes; it would log three lines for each attempt.
        began_at_s = self._now_s()
        for _ in range(self._reconnect_attempts):
            if not (self.is_usable or self._has_substitute):
                return False  # the server has refused the key
            try:
                await self._disconnect_websocket()
                await self._connect_websocket()
            except Exception as error:
                await self._report_outage(error)
            else:
                await self.set_usable(True)
                return True
            await self._fail_over_after(began_at_s)
            await asyncio.sleep(_RECONNECT_WAIT_S)
        logger.warning(f"{self}: no connection after {self._reconnect_attempts} attempts")
        return False

    async def _report_outage(self, error: Exception) -> None:
        """Report the first error of an outage, and later ones of another kind."""
        if type(error) is self._outage:
            return
        self._outage = type(error)
        is_refusal = isinstance(error, InvalidStatus)
        reason = refusal(error.response.status_code) if is_refusal else str(error)
        sentence = f"no connection to the server: {reason}"
        await self._report_error(ErrorFrame(sentence, exception=error))

    async def _fail_over_after(self, began_at_s: float) -> None:
        """Have Pipecat fail over once the listener has waited too long in an outage."""
        silent_s = self._now_s() - max(began_at_s, self._playout_end_s)
        if self._has_substitute and self.is_usable and silent_s > self._patience_s:
            await self.push_error(
                "the server cannot be reached",
                category=ErrorCategory.CONNECTIVITY,
                force_treat_as_permanent=True,
            )

    async def _receive_messages(self) -> None:
        websocket = self._websocket
        if websocket is None:
            raise ConnectionLostError(f"no connection to {self._url}")
        # Pipecat gives a service up for good after three short connections in a row. A server that
        # has sent `ready` accepts this client, so those were network faults or restarts.
        self._last_connect_time = 0.0
        started_at_s = self._now_s()
        try:
            async for data in websocket:
                self._received_at_s = self._now_s()
                event = self._connection.receive(data)
                if event is not None:
                    self._spans.receive(event)
                    await self._receive_event(event)
                    await self._leave_draining_server()
        except ConnectionClosed:
            pass  # without a closing handshake, which changes nothing here
        except ProtocolError as error:
            await self.push_error(error.message, error, category=ErrorCategory.UNKNOWN)
            await websocket.close(1002)
        self._is_ready.clear()
        self._spans.lose()
        await self._receive_loss(
            ConnectionLostError("the connection to the server was lost in the middle of a turn")
        )
        if self._now_s() - started_at_s < _SHORT_CONNECTION_S:
            await asyncio.sleep(_RECONNECT_WAIT_S)  # Pipecat's first attempt comes at once

    async def _leave_draining_server(self) -> None:
        if self._connection.is_draining:
            self._is_ready.clear()
            if not self._is_finishing and self._websocket is not None:
                await self._websocket.close()  # the reader reconnects, to the next server

    async def _write(self, websocket: WebSocket, outbox: asyncio.Queue[str]) -> None:
        with contextlib.suppress(ConnectionClosed):  # the reader handles the loss
            while True:
                await websocket.send(await outbox.get())
