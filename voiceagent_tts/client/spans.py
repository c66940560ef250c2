"""Spans of the contexts of one client socket, in the traces of the program around the client."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from voiceagent_tts.core import TRACEPARENT
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientAudio, ClientEvent
from voiceagent_tts.protocol.messages import CancelledMessage, DoneMessage, ErrorMessage
from voiceagent_tts.tracing import Span, host_tracer


class ClientSpans:
    """Starts a span for each context, and ends it with the context or the socket."""

    def __init__(self) -> None:
        self._spans: dict[str, Span] = {}

    @contextmanager
    def opening(
        self, context_id: str, metadata: dict[str, Any] | None = None
    ) -> Iterator[dict[str, Any] | None]:
        """Start the span of a context that the block opens, a child of the program's current span.

        An error in the block ends the span: no context was opened.

        Yields:
            The metadata to open the context with: it has the span's `traceparent` too, unless the
            program does not trace or has set its own.
        """
        span = host_tracer().start("tts.request", "client")
        traceparent = span.traceparent
        if traceparent is None:
            yield metadata
            return
        span.set({"gen_ai.output.type": "speech", "tts.context_id": context_id})
        try:
            is_object = metadata is None or isinstance(metadata, dict)  # else the block refuses it
            yield {TRACEPARENT: traceparent, **(metadata or {})} if is_object else metadata
        except Exception as error:
            span.fail(error.code if isinstance(error, VoiceAgentError) else ErrorCode.INVALID_PARAM)
            _end(span, "error")
            raise
        self._spans[context_id] = span

    def receive(self, event: ClientEvent) -> None:
        """Record an event of any context."""
        if not self._spans:
            return
        match event:
            case ClientAudio(context_id, seq=0) if span := self._spans.get(context_id):
                span.event("first_audio_received")
            case CancelledMessage(context_id=context_id) if span := self._spans.get(context_id):
                span.event("cancelled")
            case ErrorMessage(context_id=str(context_id)) if span := self._spans.get(context_id):
                span.fail(event.code)
            case DoneMessage(context_id=context_id, reason=reason):
                self._end(context_id, reason)
            case _:
                pass

    def lose(self) -> None:
        """End all spans: the socket is lost."""
        for context_id in list(self._spans):
            self._spans[context_id].fail(ErrorCode.CONNECTION_LOST)
            self._end(context_id, "error")

    def _end(self, context_id: str, reason: str) -> None:
        if (span := self._spans.pop(context_id, None)) is not None:
            _end(span, reason)


def _end(span: Span, reason: str) -> None:
    span.set({"tts.reason": reason})
    span.end()
