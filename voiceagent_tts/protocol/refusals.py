"""Errors for messages that are invalid, or not legal in the state of their context.

Both ends of a socket use them. They never show the text to be spoken.
"""

from collections.abc import Callable
from enum import Enum, auto

from pydantic import ValidationError
from pydantic_core import ErrorDetails, to_json

from voiceagent_tts.errors import ErrorCode, InvalidRequestError


class RefusedMessageError(InvalidRequestError):
    """A client's message is not legal; the socket stays open.

    Args:
        message: a sentence: the field, what was expected, what came.
        context_id: the context that the message names, if its id could be read.
        refuses_open: whether the refused message would have opened `context_id`, which now never
            opens.
    """

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode,
        context_id: str | None = None,
        refuses_open: bool = False,
    ) -> None:
        super().__init__(message, code=code)
        self.context_id = context_id
        self.refuses_open = refuses_open


def refusal_of(error: ValidationError) -> RefusedMessageError:
    """Turn a validation error of a message into an error that is safe to log and to send."""
    details = error.errors(include_url=False)
    first = details[0]
    is_whole_message = first["type"] == "missing" or not first["loc"]
    code = _CODES.get(first["type"], ErrorCode.INVALID_PARAM)
    code = code if is_whole_message else ErrorCode.INVALID_PARAM
    if code is ErrorCode.UNKNOWN_TYPE and not isinstance(first["input"]["type"], str):
        code = ErrorCode.INVALID_MESSAGE
    others = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return RefusedMessageError(_sentence(first) + others, code=code)


_CODES = {
    "json_invalid": ErrorCode.INVALID_JSON,
    "string_unicode": ErrorCode.INVALID_JSON,
    "union_tag_invalid": ErrorCode.UNKNOWN_TYPE,
    "union_tag_not_found": ErrorCode.INVALID_MESSAGE,
    "dict_type": ErrorCode.INVALID_MESSAGE,
    "missing": ErrorCode.INVALID_MESSAGE,
}
"""Error code of each type of Pydantic error; every other type is an invalid field."""

_WHOLE_MESSAGE: dict[str, Callable[[ErrorDetails], str]] = {
    "json_invalid": lambda detail: str(detail["msg"]),
    "string_unicode": lambda _: "Invalid JSON: the message is not valid Unicode",
    "union_tag_invalid": lambda detail: f"type: unknown; got {_shown(detail['input']['type'])}",
    "union_tag_not_found": lambda _: "type: expected the name of a message; it is missing",
}
"""Sentences about a message as a whole."""


def _sentence(detail: ErrorDetails) -> str:
    if detail["type"] in _WHOLE_MESSAGE and not detail["loc"]:
        return _WHOLE_MESSAGE[detail["type"]](detail)
    field = ".".join(str(part) for part in detail["loc"]) or "message"
    if detail["type"] == "missing":
        return f"{field}: missing"
    is_choice = detail["type"] == "literal_error"
    value = _shown(detail["input"]) if is_choice else _described(detail["input"])
    return f"{field}: {detail['msg']}; got {value}"


def _shown(value: object) -> str:
    """A value from a fixed list of choices; it cannot be text to be spoken."""
    return repr(value[:32]) if isinstance(value, str) else _described(value)


def _described(value: object) -> str:
    match value:
        case None | bool() | int() | float():
            return to_json(value).decode()[:32]
        case str():
            return f"a string of {len(value)} characters"
        case list():
            return "an array"
        case _:
            return "an object"


class WireState(Enum):
    """State of a context by the messages sent so far; decides which messages are legal."""

    OPEN = auto()  # the context accepts text
    TEXT_ENDED = auto()  # the client sent `end`: no more text will come
    CANCELLING = auto()  # the client sent `cancel`; `cancelled` has not been sent
    CANCELLED = auto()  # the server sent `cancelled`; only `done` may follow


_OF_CONTEXTS = {
    ErrorCode.CONTEXT_EXISTS: "exists or has ended; use an id that is new on this socket",
    ErrorCode.CONTEXT_NOT_FOUND: "was never opened on this socket",
    ErrorCode.CONTEXT_CLOSED: "accepts no more text: it was ended or cancelled, or is done",
}


def context_refusal(code: ErrorCode, context_id: str) -> RefusedMessageError:
    """Return the error for a message that is not legal in the state of its context."""
    sentence = f"context {context_id!r} {_OF_CONTEXTS[code]}"
    return RefusedMessageError(sentence, code=code, context_id=context_id)
