"""Logs unexpected failures: where they happened, but never the text to be spoken."""

import traceback

import structlog

from voiceagent_tts.errors import ErrorCode, VoiceAgentError

_log = structlog.get_logger(__name__)


def log_if_unexpected(error: VoiceAgentError, **ids: str | int | None) -> None:
    """Log the type and the stack of the exception that `VoiceAgentError.unexpected` wraps.

    Its message is left out, because it may quote the text.
    """
    cause = error.__cause__
    if error.code is ErrorCode.INTERNAL and cause is not None:
        calls = "".join(traceback.format_tb(cause.__traceback__))
        _log.error("server_failed", problem=type(cause).__name__, calls=calls, **ids)
