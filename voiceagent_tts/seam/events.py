"""Events that an engine sends to the server.

Positions are samples at 24 kHz, counted from the first sample of their context. Word spans are
offsets into the client's verbatim text.
"""

from dataclasses import dataclass, field
from typing import Literal

from voiceagent_tts.core import AudioChunk, WarningCode, WordTimestamp
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.seam.commands import Feeding

Gender = Literal["female", "male"]
VoiceKind = Literal["preset", "variant", "language", "speaker", "designed", "clone", "alias"]
"""What a voice is: a named timbre, espeak's variant or language voice, a speaker of a model, one
that is made from a description, a clone, or another name of one of these."""


@dataclass(frozen=True, slots=True)
class VoiceDetails:
    """What a worker knows of one of its voices."""

    name: str
    kind: VoiceKind
    language: str | None = None  # code of the one that it is made for; None for a voice of any
    gender: Gender | None = None  # how it sounds; None if unknown


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Voices, languages and limits of a worker."""

    engine: str
    model: str
    has_native_words: bool  # whether it sends word times itself
    text_feeding: tuple[Feeding, ...]  # the first one suits text still being written
    languages: tuple[str, ...]  # codes that it accepts
    voices: tuple[str, ...]  # names that it accepts
    max_rows: int  # contexts at the same time
    has_native_speed: bool = False
    """Whether it speaks at the requested speed itself, within the native range."""
    takes_instruct: bool = False  # whether its voices follow a description of how to speak
    needs_instruct: bool = False  # whether a voice is made from the description in `instruct`
    clone_width: int | None = None
    """Numbers in the speaker embeddings of the clones that it also speaks, which may be added and
    removed while it runs; None where it speaks no clones."""
    max_batch_rows: int | None = None  # batch contexts at the same time; None for `max_rows`
    reads_ipa: bool = False  # whether it says the IPA of a reading, rather than its letters
    aligner: str | None = None  # where the forced aligner runs and why; None for other workers
    revision: str = ""
    """What shapes the sound besides the model's name: its weights and their precision. Workers with
    equal engine, model and revision speak alike."""
    has_pauses: bool = False
    """Whether the audio of a segment ends with a pause only if text follows."""
    has_monolingual_voices: bool = False
    """Whether a voice speaks no language but the one it is made for."""
    voice_details: tuple[VoiceDetails, ...] = ()  # in any order; some voices may be missing


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker accepts contexts now."""

    capabilities: Capabilities


@dataclass(frozen=True, slots=True)
class ContextAudio:
    """One context's part of an audio step."""

    context: int
    chunk: AudioChunk


@dataclass(frozen=True, slots=True)
class AudioStep:
    """Audio of all rows that one engine step generated."""

    rows: tuple[ContextAudio, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """Word times of a context, in order, each word once; sent before the audio they describe."""

    context: int
    words: tuple[WordTimestamp, ...]
    is_cached: bool = False
    """Whether they are all words of the next segment, whose audio and times were made before, for
    another context. No aligner needs that audio; `words` is empty where their times are unknown."""


@dataclass(frozen=True, slots=True)
class Warned:
    """Output is degraded; sent once per code and context.

    `message` is a sentence for the client: what is degraded, why, and what to do.
    """

    context: int
    code: WarningCode
    message: str


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """All audio and words of the context's text before `char_end` have been sent."""

    context: int
    char_end: int
    end_sample: int


@dataclass(frozen=True, slots=True)
class Done:
    """All text of the context is generated; its row is free."""

    context: int
    end_sample: int
    is_unspeakable: bool = False
    """Whether there was something to say, and the voice had no sound for any of it."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The context's row is free; no event follows for the context."""

    context: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The context, or the worker where `context` is None, failed; its row is free."""

    context: int | None
    code: ErrorCode
    message: str
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """Metrics of a worker, sent every second; also its heartbeat."""

    rows_used: int  # contexts that occupy a row
    audio_samples: int  # generated since the worker started
    busy_s: float  # spent in steps since the worker started
    metrics: dict[str, float] = field(default_factory=dict[str, float])  # as `Engine.metrics`


Event = Ready | AudioStep | Words | Warned | SegmentEnd | Done | Cancelled | Failed | Stats
