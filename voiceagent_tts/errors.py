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
    """Stable names of failures, shared by WebSocket, HTTP, worker messages and metrics.

    Each with its HTTP status, 400 for a mistake of the caller, and whether an unchanged request
    may succeed on a retry.
    """

    status: int
    is_retryable: bool

    def __new__(cls, value: str, status: int = 400, is_retryable: bool = False) -> "ErrorCode":
        """Make a member."""
        code = str.__new__(cls, value)
        code._value_, code.status, code.is_retryable = value, status, is_retryable
        return code

    INVALID_JSON = "invalid_json"
    INVALID_MESSAGE = "invalid_message"
    UNKNOWN_TYPE = "unknown_type"
    INVALID_PARAM = "invalid_param"
    INVALID_VOICE = "invalid_voice"
    INVALID_LANGUAGE = "invalid_language"
    LANGUAGE_UNAVAILABLE = "language_unavailable"
    CONTEXT_EXISTS = "context_exists", 409
    CONTEXT_CLOSED = "context_closed", 409
    CONTEXT_NOT_FOUND = "context_not_found", 404
    TOO_MANY_CONTEXTS = "too_many_contexts", 429, True
    TEXT_TOO_LONG = "text_too_long"
    TEXT_UNSPEAKABLE = "text_unspeakable"
    MESSAGE_TOO_BIG = "message_too_big", 413
    RATE_LIMITED = "rate_limited", 429, True
    OVERLOADED = "overloaded", 503, True
    MODEL_NOT_READY = "model_not_ready", 503, True
    ENGINE_ERROR = "engine_error", 500, True
    TEXT_LOST = "text_lost", 500, True
    INVALID_CHECKPOINT = "invalid_checkpoint", 500
    SLOW_CONSUMER = "slow_consumer", 408
    IDLE_TIMEOUT = "idle_timeout", 408
    DRAINING = "draining", 503, True
    UNAUTHORIZED = "unauthorized", 401
    FORBIDDEN = "forbidden", 403
    CONNECTION_LOST = "connection_lost", 502, True
    VERSION_MISMATCH = "version_mismatch"
    NOT_FOUND = "not_found", 404
    METHOD_NOT_ALLOWED = "method_not_allowed", 405
    UPGRADE_REQUIRED = "upgrade_required", 426
    NOT_SUPPORTED = "not_supported", 501
    CONSENT_REQUIRED = "consent_required", 403
    VOICE_QUOTA = "voice_quota", 403
    JOB_QUOTA = "job_quota", 429, True
    STORAGE_UNAVAILABLE = "storage_unavailable", 503, True
    INTERNAL = "internal", 500, True


class VoiceAgentError(Exception):
    """Base class of all errors of this package.

    Args:
        message: one sentence: what was expected, what was received, what to try.
        code: stable name of the failure; by default the class's `default_code`.
        retry_after_ms: time after which a retry may succeed; None if unknown.
        spoken_chars: of a context that has lost its text (`text_lost`), the characters that were
            spoken before; the audio after them was noise. None for other errors.
        dropped: of text that was refused while its context goes on, its start and end in the
            context's text. None for other errors.
    """

    default_code = ErrorCode.INTERNAL

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        retry_after_ms: int | None = None,
        spoken_chars: int | None = None,
        dropped: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.retry_after_ms = retry_after_ms
        self.spoken_chars = spoken_chars
        self.dropped = dropped

    @classmethod
    def wrapping(cls, error: Exception) -> "VoiceAgentError":
        """Return an error of this package as it is; else report a mistake of it, by type alone.

        The message of a mistake may quote the spoken text.
        """
        if isinstance(error, VoiceAgentError):
            return error
        failure = VoiceAgentError(f"the server failed with {type(error).__name__}")
        failure.__cause__ = error
        return failure

    @property
    def status(self) -> int:
        """HTTP status of this error."""
        return self.code.status

    @property
    def is_retryable(self) -> bool:
        """Whether an unchanged request may succeed on a retry."""
        return self.code.is_retryable


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


_CLASSES: dict[ErrorCode, type[VoiceAgentError]] = {
    ErrorCode.UNAUTHORIZED: UnauthorizedError,
    ErrorCode.FORBIDDEN: UnauthorizedError,
    ErrorCode.RATE_LIMITED: OverloadedError,
    ErrorCode.TOO_MANY_CONTEXTS: OverloadedError,
    ErrorCode.OVERLOADED: OverloadedError,
    ErrorCode.MODEL_NOT_READY: OverloadedError,
    ErrorCode.DRAINING: OverloadedError,
    ErrorCode.ENGINE_ERROR: EngineError,
    ErrorCode.TEXT_LOST: EngineError,
    ErrorCode.INTERNAL: EngineError,
    ErrorCode.INVALID_CHECKPOINT: CheckpointError,
    ErrorCode.SLOW_CONSUMER: ConnectionLostError,
    ErrorCode.CONNECTION_LOST: ConnectionLostError,
}


def class_of(code: ErrorCode) -> type[VoiceAgentError]:
    """The class of an error that another process has reported by its code."""
    return _CLASSES.get(code, InvalidRequestError)
