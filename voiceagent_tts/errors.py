"""Everything that can go wrong, as one tree.

VoiceAgentError
├── InvalidRequestError     the caller must change a field, a voice, a text, an order of calls
├── UnauthorizedError       no key, a wrong key, or an origin that is not allowed
├── OverloadedError         correct, but not now: retry after `retry_after_ms`
├── EngineError             a worker failed, died, or could not speak this text
├── CheckpointError         a model's files are missing, partial, or of another kind
└── ConnectionLostError     the socket to the server closed before the answer was complete

Every error carries a stable `code`; messages are sentences for people and may change.
Messages name ids, limits and fields, never the text that was to be spoken.
"""

from enum import StrEnum


class ErrorCode(StrEnum):
    """Stable names of failures, the same over WebSocket, HTTP, worker messages and metrics."""

    INVALID_JSON = "invalid_json"
    INVALID_MESSAGE = "invalid_message"
    UNKNOWN_TYPE = "unknown_type"
    INVALID_PARAM = "invalid_param"
    INVALID_VOICE = "invalid_voice"
    INVALID_LANGUAGE = "invalid_language"
    CONTEXT_EXISTS = "context_exists"
    CONTEXT_CLOSED = "context_closed"
    CONTEXT_NOT_FOUND = "context_not_found"
    TOO_MANY_CONTEXTS = "too_many_contexts"
    TEXT_TOO_LONG = "text_too_long"
    TEXT_UNSPEAKABLE = "text_unspeakable"
    MESSAGE_TOO_BIG = "message_too_big"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    MODEL_NOT_READY = "model_not_ready"
    ENGINE_ERROR = "engine_error"
    INVALID_CHECKPOINT = "invalid_checkpoint"
    SLOW_CONSUMER = "slow_consumer"
    IDLE_TIMEOUT = "idle_timeout"
    DRAINING = "draining"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    CONNECTION_LOST = "connection_lost"
    VERSION_MISMATCH = "version_mismatch"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    INTERNAL = "internal"


HTTP_STATUS: dict[ErrorCode, int] = {
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CONTEXT_NOT_FOUND: 404,
    ErrorCode.METHOD_NOT_ALLOWED: 405,
    ErrorCode.CONTEXT_EXISTS: 409,
    ErrorCode.CONTEXT_CLOSED: 409,
    ErrorCode.MESSAGE_TOO_BIG: 413,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.TOO_MANY_CONTEXTS: 429,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.MODEL_NOT_READY: 503,
    ErrorCode.DRAINING: 503,
    ErrorCode.ENGINE_ERROR: 500,
    ErrorCode.INVALID_CHECKPOINT: 500,
    ErrorCode.INTERNAL: 500,
    ErrorCode.CONNECTION_LOST: 502,
    ErrorCode.SLOW_CONSUMER: 408,
    ErrorCode.IDLE_TIMEOUT: 408,
}
"""Status of each code; every code that is not listed is the caller's mistake: 400."""

RETRYABLE = frozenset(
    {
        ErrorCode.RATE_LIMITED,
        ErrorCode.TOO_MANY_CONTEXTS,
        ErrorCode.OVERLOADED,
        ErrorCode.MODEL_NOT_READY,
        ErrorCode.DRAINING,
        ErrorCode.ENGINE_ERROR,
        ErrorCode.INTERNAL,
        ErrorCode.CONNECTION_LOST,
    }
)
"""Codes after which the same request may succeed unchanged."""


class VoiceAgentError(Exception):
    """Root of the tree.

    Args:
        message: a sentence: what was expected, what came, what to do.
        code: stable name of the failure.
        retry_after_ms: how long to wait before the same request may succeed, if known.
    """

    default_code = ErrorCode.INTERNAL

    def __init__(
        self, message: str, *, code: ErrorCode | None = None, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.retry_after_ms = retry_after_ms

    @property
    def status(self) -> int:
        """HTTP status of this error."""
        return HTTP_STATUS.get(self.code, 400)

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed unchanged."""
        return self.code in RETRYABLE


class InvalidRequestError(VoiceAgentError):
    """The caller must change something."""

    default_code = ErrorCode.INVALID_MESSAGE


class UnauthorizedError(VoiceAgentError):
    """No key, a wrong key, or an origin that is not allowed."""

    default_code = ErrorCode.UNAUTHORIZED


class OverloadedError(VoiceAgentError):
    """Correct, but not now."""

    default_code = ErrorCode.OVERLOADED


class EngineError(VoiceAgentError):
    """A worker failed, died, or could not speak this text."""

    default_code = ErrorCode.ENGINE_ERROR

    @classmethod
    def of(cls, who: str, error: Exception) -> "EngineError":
        """What went wrong inside `who`, by its kind alone: its own message may quote the text."""
        return cls(f"{who} failed with {type(error).__name__}")


class CheckpointError(VoiceAgentError):
    """A model's files are missing, partial, or of a kind that this network can not compute."""

    default_code = ErrorCode.INVALID_CHECKPOINT


class ConnectionLostError(VoiceAgentError):
    """The socket closed before the answer was complete."""

    default_code = ErrorCode.CONNECTION_LOST
