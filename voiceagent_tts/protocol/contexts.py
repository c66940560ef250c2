"""State of a context, and the errors for illegal messages, for both ends of a socket."""

from enum import Enum, auto

from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.protocol.refusals import RefusedMessageError


class WireState(Enum):
    """State of a context by the messages sent so far; decides which messages are legal."""

    OPEN = auto()
    """The context accepts text."""
    ENDED = auto()
    """The client sent `end`: no more text will come."""
    CANCELLING = auto()
    """The client sent `cancel`; `cancelled` has not been sent."""
    CANCELLED = auto()
    """The server sent `cancelled`; only `done` may follow."""


def context_exists(context_id: str) -> RefusedMessageError:
    """Error for opening a context whose id is in use, or was used before."""
    return RefusedMessageError(
        f"context {context_id!r} exists or has ended; use an id that is new on this socket",
        code=ErrorCode.CONTEXT_EXISTS,
        context_id=context_id,
    )


def context_not_found(context_id: str) -> RefusedMessageError:
    """Error for a message about a context that this socket never had."""
    return RefusedMessageError(
        f"context {context_id!r} was never opened on this socket",
        code=ErrorCode.CONTEXT_NOT_FOUND,
        context_id=context_id,
    )


def context_closed(context_id: str) -> RefusedMessageError:
    """Error for text that is sent to a context after its end."""
    return RefusedMessageError(
        f"context {context_id!r} accepts no more text: it was ended or cancelled, or is done",
        code=ErrorCode.CONTEXT_CLOSED,
        context_id=context_id,
    )
