"""A response whose body is speech; if the speech fails, the body ends without its last chunk."""

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.server.failures import log_if_unexpected
from voiceagent_tts.server.request_log import note_error, request_id_of
from voiceagent_tts.server.state import ServerState


class SpeechResponse(StreamingResponse):
    """Streams speech, and counts and logs the error that ends it early.

    The status has been sent by then, so the client notices the error by the missing last chunk.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer to a request."""
        self._scope = scope
        await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Send the headers and the body."""
        try:
            await super().stream_response(send)
        except VoiceAgentError as error:
            state: ServerState = self._scope["app"].state.server
            state.metrics.errors.labels(error.code).inc()
            note_error(self._scope, error)
            log_if_unexpected(error, request_id=request_id_of(self._scope))
