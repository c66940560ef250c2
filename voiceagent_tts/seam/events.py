"""Events that an engine sends to the server.

Positions are samples at 24 kHz, counted from the first sample of their context. Word spans are
offsets into the client's text, as the engine was given it.
"""

from dataclasses import dataclass, field

from voiceagent_tts.core import AudioChunk, WordTimestamp
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.seam.commands import Feeding


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a worker can do; `voices` and `languages` are the names it accepts."""

    engine: str
    model: str
    has_native_words: bool
    text_feeding: tuple[Feeding, ...]
    """The ways this engine takes text; the first is meant for text that is still being written."""
    languages: tuple[str, ...]
    voices: tuple[str, ...]
    max_rows: int
    has_native_speed: bool = False
    needs_instruct: bool = False
    """A voice is made from the description in `instruct`."""
    clone_width: int | None = None
    """Numbers in the speaker embeddings of the clones that it also speaks, which come and go while
    it runs; None where it speaks none."""
    max_batch_rows: int | None = None
    """Of its rows, how many may be batch contexts; None for all."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker can be used."""

    capabilities: Capabilities


@dataclass(frozen=True, slots=True)
class ContextAudio:
    """One row's part of an audio step: (context, where it begins, PCM16 at 24 kHz)."""

    context: int
    chunk: AudioChunk


@dataclass(frozen=True, slots=True)
class AudioStep:
    """What one step made, for all rows together."""

    rows: tuple[ContextAudio, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """Word times of a context, in order, each word once; sent before the audio they describe."""

    context: int
    words: tuple[WordTimestamp, ...]


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """All audio and words of the context's segments up to `char_end` are out."""

    context: int
    char_end: int
    end_sample: int


@dataclass(frozen=True, slots=True)
class Done:
    """The context has spoken all of its text; its row is free."""

    context: int
    end_sample: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The row is free; nothing follows for this context."""

    context: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The context (or, where it is None, the worker) failed; its row is free."""

    context: int | None
    code: ErrorCode
    message: str
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """Sent every second, and so the worker's heartbeat."""

    rows_used: int
    audio_samples: int
    """Samples made since the worker started."""
    busy_s: float
    """Seconds spent in steps since the worker started."""
    figures: dict[str, float] = field(default_factory=dict[str, float])
    """What else the engine tells operators: see `Engine.figures`."""


Event = Ready | AudioStep | Words | SegmentEnd | Done | Cancelled | Failed | Stats
