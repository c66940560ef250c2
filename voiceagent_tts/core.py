"""The words every room speaks: frames, words, and the messages at the engine's seam.

Positions are samples at 24 kHz, counted from the first sample of their context (its clock).
Character offsets count Unicode code points in the concatenation of a context's text messages.
This module knows no engine, no socket and no clock.
"""

from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from voiceagent_tts.errors import ErrorCode

SAMPLE_RATE_HZ = 24_000
BYTES_PER_SAMPLE = 2  # PCM16, mono, little-endian
FRAME_SAMPLES = 1_920  # one codec frame: 80 ms
FRAME_S = FRAME_SAMPLES / SAMPLE_RATE_HZ
MAX_MESSAGE_PCM_BYTES = 4_096


def samples_to_ms(samples: int) -> int:
    """Whole milliseconds of `samples` at 24 kHz, rounded down."""
    return samples * 1000 // SAMPLE_RATE_HZ


def ms_to_samples(ms: float) -> int:
    """Samples at 24 kHz of `ms` milliseconds, rounded down."""
    return int(ms * SAMPLE_RATE_HZ / 1000)


@dataclass(frozen=True, slots=True)
class Word:
    """A verbatim span of the client's text: `text == context_text[char_start:char_end]`."""

    text: str
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class WordTimestamp:
    """When a word sounds on its context's clock.

    `end_sample` is None while the end is not yet known; `is_exact` is False for an estimate.
    """

    word: Word
    start_sample: int
    end_sample: int | None
    is_exact: bool

    def later(self, samples: int) -> "WordTimestamp":
        """The same word `samples` later: on a clock that began so much earlier."""
        end_sample = None if self.end_sample is None else self.end_sample + samples
        return replace(self, start_sample=self.start_sample + samples, end_sample=end_sample)


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """PCM16 mono at 24 kHz that begins at `start_sample` of its context."""

    start_sample: int
    pcm: bytes

    @property
    def samples(self) -> int:
        """Length in samples."""
        return len(self.pcm) // BYTES_PER_SAMPLE

    @property
    def end_sample(self) -> int:
        """Position of the first sample after this chunk."""
        return self.start_sample + self.samples


@dataclass(frozen=True, slots=True)
class Segment:
    """The piece of a context that one engine run speaks; segments of a context tile its text."""

    text: str
    char_start: int

    @property
    def char_end(self) -> int:
        """Offset of the first character after this segment."""
        return self.char_start + len(self.text)


@dataclass(frozen=True, slots=True)
class Cut:
    """What of a text was heard; `text_spoken + text_remaining` is the text, always."""

    text_spoken: str
    text_remaining: str
    is_partial: bool
    """Whether the last word spoken was cut before its end."""


Feeding = Literal["token", "segment"]
"""How text reaches an engine: as it arrives, or cut into segments that are spoken as wholes."""

# The engine's seam. Commands go in, events come out; `context` is the server's own number for a
# context, unique in the life of a worker. Text is the client's, verbatim: the engine cleans it
# (text.hygiene) and reports words as spans of what it was given.


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
    instruct: str | None = None
    speed: float = 1.0
    seed: int | None = None
    feeding: Feeding = "segment"
    initial_frames: int | None = None
    """Codec frames that are decoded together at first, where an engine has a choice."""
    keeps_silence: bool = False
    """Send the silence before the first sound too."""
    is_batch: bool = False
    """Nobody listens while it is spoken: it never delays those to whom somebody listens."""


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
    instruct: str | None = None
    feeding: Feeding = "token"


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


class Inbox(Protocol):
    """Where an engine takes commands from; never blocks."""

    def __call__(self) -> list[Command]:
        """Take the commands that have arrived since the last call."""
        ...


class Outbox(Protocol):
    """Where an engine leaves events; they are on their way when the call returns."""

    def __call__(self, event: Event, /) -> None:
        """Hand over one event."""
        ...


class Engine(Protocol):
    """What stands behind a worker: commands in from an `Inbox`, events out to an `Outbox`."""

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do; fixed for its life."""
        ...

    @property
    def rows_used(self) -> int:
        """Contexts that hold a row now."""
        ...

    @property
    def figures(self) -> dict[str, float]:
        """What operators may want to know of this kind of engine, for `/metrics`.

        Names end in a unit, and in `_total` where the figure counts from the worker's start.
        """
        ...

    def step(self) -> float | None:
        """Take commands and do one step for the rows that may be stepped.

        Returns:
            Seconds until the next step has something to do: 0.0 for at once, None for not before
            a command arrives.
        """
        ...

    def close(self) -> None:
        """Release what the engine owns; idempotent."""
        ...


class PlayoutClock:
    """When the listener hears what: playback re-anchored on every audio sent.

    `playout_end = max(playout_end, now) + duration`: a listener who ran dry starts again with the
    next audio, so a stall neither makes a row urgent for ever nor lets words run ahead of sound.
    Time is passed in (`time.monotonic()` seconds); positions are samples at 24 kHz.
    """

    def __init__(self) -> None:
        self.sent_samples = 0
        self.playout_end = 0.0
        """The time at which everything sent so far has been heard."""
        self.underrun_s = 0.0
        """Silence that the listener heard between sent audio."""

    def send(self, samples: int, now: float) -> None:
        """Audio of `samples` leaves for the listener at `now`."""
        if self.sent_samples and now > self.playout_end:
            self.underrun_s += now - self.playout_end
        self.playout_end = max(self.playout_end, now) + samples / SAMPLE_RATE_HZ
        self.sent_samples += samples

    def lead_s(self, now: float) -> float:
        """Seconds of audio that were sent and are still to be heard."""
        return max(0.0, self.playout_end - now)

    def played_samples(self, now: float) -> int:
        """How much of what was sent has been heard at `now`, gaps excluded."""
        return max(0, self.sent_samples - round(self.lead_s(now) * SAMPLE_RATE_HZ))
