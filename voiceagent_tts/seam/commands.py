"""Commands that the server sends to an engine.

`context` is the server's own number for a context, unique in the life of a worker. Text is the
client's, verbatim: the engine cleans it (`text.hygiene`) and reports words as spans of what it was
given. Positions are samples at 24 kHz, counted from the first sample of their context.
"""

from dataclasses import dataclass
from typing import Literal

Feeding = Literal["token", "segment"]
"""How text reaches an engine: as it arrives, or cut into segments that are spoken as wholes."""


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """How an engine speaks a context; every layer passes this record on unchanged.

    Args:
        instruct: description of how to speak, for voices that follow one.
        speed: speaking rate, 0.5 to 2.0; 1.0 is the voice's own.
        seed: makes the audio reproducible; None for a random seed.
        initial_frames: codec frames in the first decode window; None for the engine's default.
        keeps_silence: whether the silence before the first sound is sent.
        is_batch: whether the audio is not played while it is generated; a batch context never
            delays the others.
    """

    instruct: str | None = None
    speed: float = 1.0
    seed: int | None = None
    initial_frames: int | None = None
    keeps_silence: bool = False
    is_batch: bool = False


@dataclass(frozen=True, slots=True)
class Submit:
    """Open a row for `context` and speak `text`, whose first character is `char_base`.

    In segment feeding each `Submit` and `Append` carries one segment; in token feeding, text as it
    arrives, to be spoken while the rest is still being written. With `more` false no text follows
    and the row ends after this text.
    """

    context: int
    text: str
    char_base: int
    more: bool
    voice: str
    language: str | None
    """Lower-case code, with a region where one is known: `en`, `pt-br`. None, only in token
    feeding, leaves it to the engine."""
    feeding: Feeding = "segment"
    options: SpeechOptions = SpeechOptions()


@dataclass(frozen=True, slots=True)
class Append:
    """More text for a context; empty `text` with `more` false only ends it."""

    context: int
    text: str
    char_base: int
    more: bool
    language: str | None


@dataclass(frozen=True, slots=True)
class Flush:
    """Speak all of a token-fed context's text so far as if it had ended, with a `SegmentEnd`.

    Text that follows begins anew, in the same voice and on the same clock.
    """

    context: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop `context` and free its row; answered by `Cancelled`, also where it is unknown."""

    context: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """A turn is about to open with this voice: do now what would delay its first audio."""

    voice: str
    language: str | None
    """As in `Submit`; in segment feeding None where it is not known before the text."""
    feeding: Feeding = "token"
    options: SpeechOptions = SpeechOptions()


@dataclass(frozen=True, slots=True)
class Credit:
    """How far a context's listener is; the only thing that lets its row be stepped.

    `samples_wanted` counts from the context's first sample and never decreases. `playout_end` is
    the `time.monotonic()` at which what was sent so far has been heard: the row's deadline.
    """

    context: int
    playout_end: float
    samples_wanted: int


Command = Submit | Append | Flush | Cancel | Prepare | Credit
