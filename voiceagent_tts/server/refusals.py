"""Errors that one socket sends to its client: counted, logged and answered."""

from typing import Any

import structlog

from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.protocol.server_connection import ServerConnection
from voiceagent_tts.server.failures import log_if_unexpected
from voiceagent_tts.server.metrics import Metrics
from voiceagent_tts.server.socket_writer import SocketWriter

MAX_REFUSALS = 32
"""Number of `rate_limited` answers in a row after which a socket is closed (4029)."""


class Refusals:
    """Answers what a socket cannot do, and closes the socket of a client that ignores its limits.

    Args:
        connection: builds the messages.
        socket: sends them.
        metrics: counts them.
        session_id: for the log.
    """

    def __init__(
        self,
        connection: ServerConnection,
        socket: SocketWriter,
        metrics: Metrics,
        session_id: str,
    ) -> None:
        self._connection = connection
        self._socket = socket
        self._metrics = metrics
        self._session_id = session_id
        self._log = structlog.get_logger(__name__).bind(session_id=session_id)
        self._in_a_row = 0

    def answer(
        self,
        error: VoiceAgentError,
        context_id: str | None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Send an error to the client; `metadata` is what the client gave its context, for the log.

        Closes the socket if the client ignores its limits, or its key was revoked.
        """
        self.note(error, context_id, metadata)
        self._socket.answer(self._connection.error(error, context_id))
        if error.code is ErrorCode.UNAUTHORIZED:
            self._socket.close(1008, "the key was revoked")
        if error.code is ErrorCode.RATE_LIMITED:
            self._in_a_row += 1
            if self._in_a_row >= MAX_REFUSALS:
                self._socket.close(4029, f"{MAX_REFUSALS} messages in a row were over a limit")

    def note(
        self,
        error: VoiceAgentError,
        context_id: str | None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Count and log an error that is sent to the client in another way."""
        self._metrics.errors.labels(error.code).inc()
        log_if_unexpected(error, session_id=self._session_id, context_id=context_id)
        self._log.info(
            "message_refused", context_id=context_id, code=error.code.value, metadata=metadata
        )

    def note_accepted(self) -> None:
        """Note that the client was within its limits: its refusals are not in a row."""
        self._in_a_row = 0
