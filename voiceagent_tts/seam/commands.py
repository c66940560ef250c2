"""Commands that the server sends to an engine.

`context` is the server's own number for a context, unique in the life of a worker. Text is the
client's, verbatim, except that spans with a reading are masked: the engine says them as their
readings do. It cleans the text (`text.cleaning`) and reports words as spans of the client's text.
Positions are samples at 24 kHz, counted from the first sample of their context.
"""

from dataclasses import dataclass
from typing import Literal

from voiceagent_tts.core import Reading

Feeding = Literal["token", "segment"]
"""How text reaches an engine: token by token as it arrives, or in whole segments."""


MIN_NATIVE_SPEED, MAX_NATIVE_SPEED = 0.5, 2.0
"""Speeds at which an engine with `has_native_speed` speaks itself."""


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """How an engine speaks a context."""

    instruct: str | None = None  # how to speak, in words, for voices that follow them
    speed: float = 1.0
    """Speaking rate, 0.25 to 4.0; 1.0 is the voice's own. An engine with `has_native_speed` gets
    the nearest speed that it has; other engines get the listener's, as their pace."""
    seed: int | None = None  # makes the audio reproducible; None for a random seed
    initial_frames: int | None = None
    """Codec frames in each decode window until there is sound; None for the engine's default."""
    keeps_silence: bool = False  # whether the silence before the first sound is sent
    is_batch: bool = False
    """Whether the audio is not played while it is generated; it then delays no other contexts."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Starts a row for a context with its first text.

    In segment feeding each `Submit` and `Append` carries one segment; in token feeding, text as it
    arrives, to be spoken while the rest is still being written.
    """

    context: int
    text: str
    char_base: int  # offset of `text` in the context's text
    more: bool  # whether more text may follow; without, the row ends after this text
    voice: str
    language: str | None
    """Lower-case code, with a region where one is known: `en`, `pt-br`. None lets the engine
    decide: in token feeding, or where the voice does not speak the text's language."""
    feeding: Feeding = "segment"
    options: SpeechOptions = SpeechOptions()
    readings: tuple[Reading, ...] = ()  # how spans of `text` are said, in order
    traceparent: str | None = None  # span of the context, as W3C has it; None without tracing
    continues: bool = False
    """Whether the listener has heard audio of the context that this engine did not make. A lack of
    memory or time then makes it wait, and is no reason to refuse it."""
    voice_version: tuple[int, ...] = ()
    """Version of a clone when the context was opened, which must be the clone's still; empty for
    other voices."""


@dataclass(frozen=True, slots=True)
class Append:
    """Adds text to a context; fields as in `Submit`. An empty last `text` only ends the context."""

    context: int
    text: str
    char_base: int
    more: bool
    language: str | None
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True, slots=True)
class Flush:
    """Makes the engine speak a token-fed context's text so far to its end, with a `SegmentEnd`.

    Text that follows starts a new segment, with the same voice and on the same clock.
    """

    context: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stops a context and frees its row; answered by `Cancelled`, also for an unknown context."""

    context: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """Announces a context, so that the engine computes ahead what would delay its first audio.

    Fields as in `Submit`. In segment feeding `language` is None where only the text will tell.
    """

    voice: str
    language: str | None
    feeding: Feeding = "token"
    options: SpeechOptions = SpeechOptions()
    voice_version: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Credit:
    """Permits the engine to generate audio; without credit a row is not stepped."""

    context: int
    playout_end: float
    """`time.monotonic()` at which playback of the sent audio ends: the row's deadline."""
    samples_wanted: int
    """End of the audio that may be generated, in samples from the context's first sample. It
    decreases where audio from the cache takes its place, and never below what the engine has sent
    by then."""


Command = Submit | Append | Flush | Cancel | Prepare | Credit
