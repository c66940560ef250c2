"""A dialect: what one kind of client calls the things that this server knows.

`ServerConnection` decides what is legal, in the terms of `tts.v1`; a dialect reads a client's
messages into those terms and writes the server's messages as the client expects them. `TtsV1` is
our own, in which nothing has to be translated. This module knows no I/O and no clock.
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

Frames = list[str | bytes]
"""WebSocket messages, in the order in which they are to be sent."""

_GUESSED_MS_PER_CHAR = 1000 / 15
_SILENCE_S = 0.02


@dataclass(frozen=True, slots=True)
class Answer:
    """What a dialect answers by itself; the shell sends it as it is."""

    data: str


Command = ClientMessage | Answer
"""What a shell has to do for a client."""


class Dialect(Protocol):
    """One client's messages ⇄ those of `tts.v1`; made for one socket, whose state it may keep."""

    @property
    def is_sequential(self) -> bool:
        """Whether contexts speak one after the other, in the order in which they were opened."""
        ...

    def read(self, data: str, max_bytes: int) -> list[Command]:
        """What a text message of the client asks for, in order.

        Raises:
            RefusedMessageError: it is no message of this dialect, or longer than `max_bytes`; it
                has changed nothing.
        """
        ...

    def write(self, message: ServerMessage | AudioMessage) -> Frames:
        """`message` as this client expects it: one WebSocket message, several, or none."""
        ...


class TtsV1:
    """Our own dialect."""

    is_sequential = False

    def read(self, data: str, max_bytes: int) -> list[Command]:
        """See `Dialect.read`."""
        message = parse_client_message(data)
        context_id = getattr(message, "context_id", None)
        is_open = isinstance(message, ContextOpen)
        refuse_if_big(data, max_bytes, message.type, context_id, is_open=is_open)
        return [message]

    def write(self, message: ServerMessage | AudioMessage) -> Frames:
        """See `Dialect.write`."""
        return [message.encode()]


def refuse_if_big(
    data: str, max_bytes: int, name: str, context_id: str | None = None, *, is_open: bool = False
) -> None:
    """Refuse a message that is longer than this server reads.

    Raises:
        RefusedMessageError: with code `message_too_big`.
    """
    if len(data) * 4 > max_bytes and (size := len(data.encode())) > max_bytes:
        raise RefusedMessageError(
            f"{name}: expected at most {max_bytes} bytes; got {size}",
            code=ErrorCode.MESSAGE_TOO_BIG,
            context_id=context_id,
            is_open=is_open,
        )


def known_ends_ms(message: WordsMessage) -> list[int]:
    """When each word ends, for clients that cannot do without.

    A word whose end the server does not know lasts until the next one, the last one as long as it
    takes to say as many letters.
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
"""The sample that makes no sound. Source: ITU-T G.711 for the last two."""


def silence(audio: AudioFormat) -> bytes:
    """A moment without sound: an agent framework takes a text without audio for a failure."""
    return _ZERO[audio.encoding] * round(audio.sample_rate * _SILENCE_S)
