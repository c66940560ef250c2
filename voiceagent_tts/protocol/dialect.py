"""A dialect: the protocol of one kind of client, translated to and from `tts.v1`.

`ServerConnection` decides what is legal, in terms of `tts.v1`. A dialect parses a client's messages
into those of `tts.v1`, and writes the server's messages as the client expects them. `TtsV1` is the
project's own dialect, which translates nothing. This module knows no I/O and no clock.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from voiceagent_tts.core import Encoding
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.protocol.messages import (
    AudioFormat,
    AudioMessage,
    ClientMessage,
    ContextOpen,
    ServerMessage,
    WordsMessage,
    parse_client_message,
)
from voiceagent_tts.protocol.refusals import RefusedMessageError

WireMessages = list[str | bytes]
"""WebSocket messages to send, in order."""

_GUESSED_MS_PER_CHAR = 1000 / 15
_SILENCE_S = 0.02


@dataclass(frozen=True, slots=True)
class Answer:
    """A message that the dialect answers with by itself; the server sends it unchanged."""

    data: str


Closing = tuple[int, str]
"""Code and reason with which to close a socket."""

Command = ClientMessage | Answer
"""What the server has to do for a client."""


class Dialect(Protocol):
    """Translates the messages of one socket to and from `tts.v1`; may keep the socket's state."""

    @property
    def is_sequential(self) -> bool:
        """Whether contexts speak one after the other, in the order of their opening."""
        ...

    @property
    def closing(self) -> Closing | None:
        """How to close the socket once what `write` returned is sent; None to keep it open."""
        ...

    def read(self, data: str, max_bytes: int) -> list[Command]:
        """Parse a text message of the client into commands, in order.

        Raises:
            RefusedMessageError: it is not a message of this dialect, or is longer than `max_bytes`;
                the state of the dialect has not changed.
        """
        ...

    def write(self, message: ServerMessage | AudioMessage) -> WireMessages:
        """Translate `message` into what this client expects: any number of WebSocket messages."""
        ...


class TtsV1:
    """The project's own dialect: `tts.v1`, unchanged."""

    is_sequential = False
    closing = None

    def read(self, data: str, max_bytes: int) -> list[Command]:
        """See `Dialect.read`."""
        message = parse_client_message(data)
        context_id = getattr(message, "context_id", None)
        refuses_open = isinstance(message, ContextOpen)
        refuse_if_big(data, max_bytes, message.type, context_id, refuses_open=refuses_open)
        return [message]

    def write(self, message: ServerMessage | AudioMessage) -> WireMessages:
        """See `Dialect.write`."""
        return [message.encode()]


def refuse_if_big(
    data: str,
    max_bytes: int,
    name: str,
    context_id: str | None = None,
    *,
    refuses_open: bool = False,
) -> None:
    """Refuse a message that is longer than `max_bytes`.

    Raises:
        RefusedMessageError: with code `message_too_big`.
    """
    if len(data) * 4 > max_bytes and (size := len(data.encode())) > max_bytes:
        raise RefusedMessageError(
            f"{name}: expected at most {max_bytes} bytes, got {size}",
            code=ErrorCode.MESSAGE_TOO_BIG,
            context_id=context_id,
            refuses_open=refuses_open,
        )


def known_ends_ms(message: WordsMessage) -> list[int]:
    """End of each word in milliseconds, for clients that require one.

    A word with an unknown end lasts until the next word. The last word lasts as long as words of
    its length do on average.
    """
    if not message.words:
        return []
    guess = message.start_ms[-1] + round(len(message.words[-1]) * _GUESSED_MS_PER_CHAR)
    next_starts = [start for _, start in pairwise(message.start_ms)] + [guess]
    return [
        next_start if end is None else end
        for end, next_start in zip(message.end_ms, next_starts, strict=True)
    ]


_ZERO: dict[Encoding, bytes] = {
    "pcm_s16le": b"\0\0",
    "pcm_f32le": b"\0\0\0\0",
    "pcm_mulaw": b"\xff",
    "pcm_alaw": b"\xd5",
}
"""The silent sample of each encoding. Source: ITU-T G.711 for the last two."""


def silence(audio: AudioFormat) -> bytes:
    """20 ms of silence: agent frameworks treat a text without audio as a failure."""
    return _ZERO[audio.encoding] * round(audio.sample_rate * _SILENCE_S)
