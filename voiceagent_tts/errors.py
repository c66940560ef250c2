"""The exceptions of the package, as one tree.

VoiceAgentError
├── InvalidRequestError     the caller must change a field, a voice, a text or the order of calls
├── UnauthorizedError       missing or wrong API key, or an origin that is not allowed
├── OverloadedError         a valid request without free capacity: retry after `retry_after_ms`
├── EngineError             a worker failed, exited, or could not speak this text
├── CheckpointError         a model's files are missing, incomplete or unsupported
└── ConnectionLostError     the socket to the server closed before the response was complete

Every error carries a stable `code`. Messages are sentences for people and may change: what was
expected, what was received, what to try. They name ids, limits and fields, never the text to speak.
"""

from enum import StrEnum


class ErrorCode(StrEnum):
    """Stable names of failures, shared by WebSocket, HTTP, worker messages and metrics."""

    INVALID_JSON = "invalid_json"
    INVALID_MESSAGE = "invalid_message"
    UNKNOWN_TYPE = "unknown_type"
    INVALID_PARAM = "invalid_param"
    INVALID_VOICE = "invalid_voice"
    INVALID_LANGUAGE = "invalid_language"
    LANGUAGE_UNAVAILABLE = "language_unavailable"
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
    TEXT_LOST = "text_lost"
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
    UPGRADE_REQUIRED = "upgrade_required"
    NOT_SUPPORTED = "not_supported"
    CONSENT_REQUIRED = "consent_required"
    VOICE_QUOTA = "voice_quota"
    JOB_QUOTA = "job_quota"
    STORAGE_UNAVAILABLE = "storage_unavailable"
    INTERNAL = "internal"


HTTP_STATUS: dict[ErrorCode, int] = {
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.CONSENT_REQUIRED: 403,
    ErrorCode.VOICE_QUOTA: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CONTEXT_NOT_FOUND: 404,
    ErrorCode.METHOD_NOT_ALLOWED: 405,
    ErrorCode.NOT_SUPPORTED: 501,
    ErrorCode.CONTEXT_EXISTS: 409,
    ErrorCode.CONTEXT_CLOSED: 409,
    ErrorCode.MESSAGE_TOO_BIG: 413,
    ErrorCode.UPGRADE_REQUIRED: 426,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.JOB_QUOTA: 429,
    ErrorCode.TOO_MANY_CONTEXTS: 429,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.MODEL_NOT_READY: 503,
    ErrorCode.DRAINING: 503,
    ErrorCode.STORAGE_UNAVAILABLE: 503,
    ErrorCode.ENGINE_ERROR: 500,
    ErrorCode.TEXT_LOST: 500,
    ErrorCode.INVALID_CHECKPOINT: 500,
    ErrorCode.INTERNAL: 500,
    ErrorCode.CONNECTION_LOST: 502,
    ErrorCode.SLOW_CONSUMER: 408,
    ErrorCode.IDLE_TIMEOUT: 408,
}
"""HTTP status of each code. A code that is not listed is a mistake of the caller: 400."""

RETRYABLE = frozenset(
    {
        ErrorCode.RATE_LIMITED,
        ErrorCode.JOB_QUOTA,
        ErrorCode.TOO_MANY_CONTEXTS,
        ErrorCode.OVERLOADED,
        ErrorCode.MODEL_NOT_READY,
        ErrorCode.DRAINING,
        ErrorCode.STORAGE_UNAVAILABLE,
        ErrorCode.ENGINE_ERROR,
        ErrorCode.TEXT_LOST,
        ErrorCode.INTERNAL,
        ErrorCode.CONNECTION_LOST,
    }
)
"""Codes after which an unchanged request may succeed on a retry."""


class VoiceAgentError(Exception):
    """Base class of all errors of this package.

    Args:
        message: one sentence: what was expected, what was received, what to try.
        code: stable name of the failure; by default the class's `default_code`.
        retry_after_ms: time after which a retry may succeed; None if unknown.
        spoken_chars: of a context that has lost its text (`text_lost`), the characters that were
            spoken before; the audio behind them was noise. None for other errors.
    """

    default_code = ErrorCode.INTERNAL

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        retry_after_ms: int | None = None,
        spoken_chars: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.retry_after_ms = retry_after_ms
        self.spoken_chars = spoken_chars

    @classmethod
    def unexpected(cls, error: Exception) -> "VoiceAgentError":
        """Report a mistake of this package by type alone: the message may quote the spoken text."""
        failure = VoiceAgentError(f"the server failed with {type(error).__name__}")
        failure.__cause__ = error
        return failure

    @property
    def status(self) -> int:
        """HTTP status of this error."""
        return HTTP_STATUS.get(self.code, 400)

    @property
    def is_retryable(self) -> bool:
        """Whether an unchanged request may succeed on a retry."""
        return self.code in RETRYABLE


class InvalidRequestError(VoiceAgentError):
    """The request is invalid; the caller must change it."""

    default_code = ErrorCode.INVALID_MESSAGE


class UnauthorizedError(VoiceAgentError):
    """The API key is missing or wrong, or the origin is not allowed."""

    default_code = ErrorCode.UNAUTHORIZED


class OverloadedError(VoiceAgentError):
    """The request is valid, but the server has no capacity for it now."""

    default_code = ErrorCode.OVERLOADED


class EngineError(VoiceAgentError):
    """A worker failed, exited, or could not speak this text."""

    default_code = ErrorCode.ENGINE_ERROR

    @classmethod
    def of(cls, component: str, error: Exception) -> "EngineError":
        """Report a failure of `component` by type alone: the message may quote the spoken text."""
        return cls(f"{component} failed with {type(error).__name__}")


class CheckpointError(VoiceAgentError):
    """A model's files are missing, incomplete, or of a kind that this network cannot compute."""

    default_code = ErrorCode.INVALID_CHECKPOINT


class ConnectionLostError(VoiceAgentError):
    """The socket closed before the response was complete."""

    default_code = ErrorCode.CONNECTION_LOST
