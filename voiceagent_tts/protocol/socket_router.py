"""Routes the events of one client socket to the contexts that share it, without the socket.

A program that owns the socket (websockets, aiohttp) uses the router like this:

    router = SocketRouter()
    ready = router.handshake(await socket.recv())
    await socket.send(router.connection.open("turn-1", voice="en"))
    router.attach("turn-1", inbox)           # a function that receives the context's events
    try:
        async for data in socket:
            event = router.receive(data)     # the inbox was called; use `event` for the rest
            if router.is_drained:
                break                        # close with 1000
    except ProtocolError:
        ...                                  # close with 1002
    finally:
        router.lose(router.loss(close_code)) # every inbox that is left receives the error

This module knows no I/O, no clock and no WebSocket library.
"""

from collections.abc import Callable

from voiceagent_tts.errors import ConnectionLostError, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientConnection, ClientEvent
from voiceagent_tts.protocol.messages import CLOSE_CODES, DoneMessage, ErrorMessage, ReadyMessage
from voiceagent_tts.protocol.refusals import ProtocolError

Inbox = Callable[[ClientEvent], None]
"""Receives the events of a context; `DoneMessage`, or the error of a lost socket, is the last."""


class SocketRouter:
    """Owns the protocol state of one client socket, and knows which context each event is for.

    `connection` builds the messages to send. A context is attached from its opening to its `done`.
    """

    def __init__(self) -> None:
        self.connection = ClientConnection()
        self.lost: ConnectionLostError | None = None
        """Why the socket is lost; None while it is open."""
        self._inboxes: dict[str, Inbox] = {}
        self._refusal: VoiceAgentError | None = None  # the last error that names no context

    @property
    def is_usable(self) -> bool:
        """Whether a context can be opened on this socket."""
        return self.lost is None and not self.connection.is_draining

    @property
    def is_drained(self) -> bool:
        """Whether the server drains and no context is left, so that the socket can be closed."""
        return self.connection.is_draining and not self._inboxes

    def handshake(self, data: str | bytes) -> ReadyMessage:
        """Read the first message of the server.

        Raises:
            VoiceAgentError: the server refuses the socket, or is no `tts.v1` server of this
                version.
        """
        match self.connection.receive(data):
            case ReadyMessage() as ready:
                return ready
            case ErrorMessage() as refusal:
                raise refusal.to_error()
            case _:
                raise ProtocolError("expected ready as the first message")

    def attach(self, context_id: str, inbox: Inbox) -> None:
        """Call `inbox` with the events of a context, up to its end or the loss of the socket."""
        self._inboxes[context_id] = inbox

    def detach(self, context_id: str) -> bool:
        """Stop calling the inbox of a context; returns whether the context had one."""
        return self._inboxes.pop(context_id, None) is not None

    def receive(self, data: str | bytes) -> ClientEvent | None:
        """Check one message of the server, and pass it to the inbox of its context.

        Returns:
            The event, also if an inbox received it; None for an unknown kind of message.

        Raises:
            ProtocolError: the server broke the protocol; close the socket with 1002.
        """
        try:
            event = self.connection.receive(data)
        except VoiceAgentError as error:
            self._refusal = error
            raise
        if isinstance(event, ErrorMessage) and event.context_id is None:
            self._refusal = event.to_error()
        context_id = getattr(event, "context_id", None)
        if event is not None and (inbox := self._inboxes.get(context_id or "")):
            if isinstance(event, DoneMessage):
                del self._inboxes[event.context_id]
            inbox(event)
        return event

    def loss(self, close_code: int | None) -> ConnectionLostError:
        """The error that describes the end of the socket; None is a socket without a close code."""
        meaning = CLOSE_CODES.get(close_code or 0, "the connection broke")
        cause = f": {self._refusal.message}" if self._refusal else ""
        return ConnectionLostError(f"the socket closed ({close_code}, {meaning}){cause}")

    def lose(self, error: ConnectionLostError) -> bool:
        """Mark the socket as lost, and pass `error` to every inbox, as an error of its context.

        Returns:
            Whether this call did it; False if the socket was lost before.
        """
        if self.lost is not None:
            return False
        self.lost = error
        inboxes, self._inboxes = self._inboxes, {}
        for context_id, inbox in inboxes.items():
            inbox(ErrorMessage.of(error, context_id))
        return True
