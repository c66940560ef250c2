"""What dialects share: how they read null, and the end of every word, which clients expect."""

from itertools import pairwise
from typing import Any

from pydantic import model_validator

from voiceagent_tts.protocol.messages import WireModel, WordsMessage

_GUESSED_MS_PER_CHAR = 1000 / 15


class DialectModel(WireModel):
    """Base of what clients send: a null field is as if absent, for many send all that they know."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None}


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
