"""Sequences, and the context whose sequences share one clock. Time is passed in."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto

from voiceagent_tts.core import FRAME_S, FRAME_SAMPLES, PlayoutClock
from voiceagent_tts.engine.guards import RunawayDetector, frame_cap
from voiceagent_tts.seam.commands import Credit, SpeechOptions

_FRAMES_PER_TEXT_ID = 3
_OPEN_TEXT_FRAMES = 250
"""Expected frames of a text that is still being written. Such a sequence ends after some 20 s."""


class TextState(Enum):
    """How far the text of a sequence is.

    Attributes:
        OPEN: more text may follow.
        COMPLETE: all text is known, but the row has not been fed all of it.
        FED: the row has all of the text.
        ENDED: the sequence is spoken, or was stopped before its text ended.
    """

    OPEN = auto()
    COMPLETE = auto()
    FED = auto()
    ENDED = auto()


@dataclass(slots=True)
class Sequence:
    """A text that one row speaks from its first frame to its last.

    Attributes:
        ids: token ids of the assistant's turn, as far as it is written.
        text_ids: number of ids that are text.
        char_end: end of the sequence in the client's text, in characters.
        language: language code; None if the model chooses.
        is_retried: whether this is the second attempt, after one without speech.
        has_sound: whether audio of it was sent that is not silent.
        fed_ids: number of `ids` that the row has been fed.
    """

    is_streaming: bool
    ids: list[int] = field(default_factory=list[int])
    text_ids: int = 0
    char_end: int = 0
    language: str | None = None
    text: TextState = TextState.OPEN
    is_retried: bool = False
    has_sound: bool = False
    detector: RunawayDetector = field(default_factory=RunawayDetector)
    fed_ids: int = 0

    @property
    def is_open(self) -> bool:
        """Whether more text may follow."""
        return self.text is TextState.OPEN

    @property
    def can_feed(self) -> bool:
        """Whether there are new ids, or the end of the text, that the row has not been fed."""
        if self.text is TextState.OPEN:
            return self.fed_ids < len(self.ids)
        return self.text is TextState.COMPLETE

    @property
    def likely_frames(self) -> int:
        """Expected number of frames."""
        return _OPEN_TEXT_FRAMES if self.is_open else _FRAMES_PER_TEXT_ID * self.text_ids

    @property
    def max_frames(self) -> int | None:
        """Maximum number of frames for the text; None while it is incomplete."""
        return None if self.is_open else frame_cap(self.text_ids)

    def next_ids(self) -> list[int]:
        """Return the ids that have not been fed, and count them as fed."""
        ids = self.ids[self.fed_ids :]
        self.fed_ids = len(self.ids)
        if self.text is TextState.COMPLETE:
            self.text = TextState.FED
        return ids

    def retry(self) -> None:
        """Start over in another row."""
        self.is_retried, self.fed_ids = True, 0
        if self.text is TextState.FED:
            self.text = TextState.COMPLETE
        self.detector = RunawayDetector()


class SequenceState(Enum):
    """State of a sequence that holds a row.

    Attributes:
        STARVED: waits for text.
        OUT_OF_MEMORY: makes no more frames, because no page was free.
        LOST: makes no more frames, because it made noise in place of its text.
    """

    RUNNING = auto()
    STARVED = auto()
    ENDED = auto()
    OUT_OF_MEMORY = auto()
    LOST = auto()


@dataclass(slots=True)
class ActiveSequence:
    """A sequence that holds a row, and the frames that the row has made.

    Attributes:
        likely_pages: number of KV pages that the sequence is expected to need.
        undecoded_frames: frames that have not been submitted to the codec.
        decoding_frames: frames in the codec, whose audio has not arrived.
    """

    row: int
    likely_pages: int = 1
    pages: tuple[int, ...] = ()
    undecoded_frames: int = 0
    decoding_frames: int = 0
    state: SequenceState = SequenceState.RUNNING

    @property
    def has_ended(self) -> bool:
        """Whether the row makes no more frames."""
        return self.state not in (SequenceState.RUNNING, SequenceState.STARVED)

    @property
    def pending_frames(self) -> int:
        """Frames whose audio has not arrived."""
        return self.undecoded_frames + self.decoding_frames

    def add_frame(self, *, is_end: bool) -> None:
        """Count a frame that the row made; with `is_end` it is the last one."""
        self.undecoded_frames += 1
        if is_end and self.state is not SequenceState.LOST:
            self.state = SequenceState.ENDED

    def submit_to_codec(self, frames: int) -> None:
        """Count frames that the codec decodes from now on."""
        self.undecoded_frames -= frames
        self.decoding_frames += frames


@dataclass(slots=True)
class EngineContext:
    """One agent turn as the engine speaks it: sequences in order, on one clock.

    Attributes:
        seed: seed of every sequence.
        arrival: position in the order in which contexts came.
        ids_to_start: number of ids that an open sequence needs before it can start.
        sequences: sequences that are not finished, the current one first.
        active: the row of the first sequence; None while it has no row.
        expects_text: whether more text may come, from the client or from its unread text.
        samples_wanted: end of the audio that the listener has given credit for.
        waited_for_text: whether text was missing since the last audio. A gap that follows is not
            an underrun.
        waits_for_memory: whether the next sequence waits for free pages.
        waits_for_voice: whether the first sequence waits until its voice is computed.
        held_pcm: silence that is sent together with the first sound.
        clock: playback of the audio that was sent.
    """

    id: int
    options: SpeechOptions = SpeechOptions()
    seed: int = 0
    arrival: int = 0
    ids_to_start: int = 0
    sequences: deque[Sequence] = field(default_factory=deque[Sequence])
    active: ActiveSequence | None = None
    expects_text: bool = True
    samples_wanted: int = 0
    waited_for_text: bool = False
    waits_for_memory: bool = False
    waits_for_voice: bool = False
    continues: bool = False
    held_pcm: bytes = b""
    clock: PlayoutClock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = PlayoutClock(self.options.speed)

    @property
    def is_batch(self) -> bool:
        """Whether the context is generated without a listener."""
        return self.options.is_batch

    @property
    def current(self) -> Sequence:
        """The sequence that is spoken now, or starts next; there is one."""
        return self.sequences[0]

    @property
    def has_credit(self) -> bool:
        """Whether the listener wants more audio than was sent or generated."""
        generated = 0 if self.active is None else self.active.pending_frames * FRAME_SAMPLES
        return self.clock.sent_samples + generated < self.samples_wanted

    @property
    def has_spoken(self) -> bool:
        """Whether any audio was sent."""
        return self.clock.sent_samples > 0

    @property
    def is_heard(self) -> bool:
        """Whether the listener has had audio of this reply, of this engine or another source."""
        return self.has_spoken or self.continues

    @property
    def has_text_to_start(self) -> bool:
        """Whether the next sequence has enough text to start."""
        if not self.sequences:
            return False
        sequence = self.current
        return not sequence.is_open or len(sequence.ids) >= self.ids_to_start

    @property
    def can_start(self) -> bool:
        """Whether the next sequence can be given a row."""
        if self.active is not None or self.waits_for_memory or self.waits_for_voice:
            return False
        return self.has_text_to_start and self.has_credit

    @property
    def can_step(self) -> bool:
        """Whether the row can make a frame that the listener wants."""
        active = self.active
        return active is not None and active.state is SequenceState.RUNNING and self.has_credit

    @property
    def undecoded_frames(self) -> int:
        """Frames that have not been submitted to the codec."""
        return 0 if self.active is None else self.active.undecoded_frames

    def lead_s(self, now: float, unsent_frames: int = 0) -> float:
        """Seconds of audio that the listener has left, `unsent_frames` included."""
        return self.clock.lead_s(now) + unsent_frames * FRAME_S / self.options.speed

    def generated_lead_s(self, now: float) -> float:
        """Seconds of audio that the listener has left once all generated frames are sent."""
        return self.lead_s(now, 0 if self.active is None else self.active.pending_frames)

    def update_credit(self, credit: Credit) -> None:
        """Follow the listener.

        The server knows when audio left, the engine what was sent since. Each estimate of the end
        of playout may be too early, so the later one counts.
        """
        self.clock.playout_end = max(self.clock.playout_end, credit.playout_end)
        self.samples_wanted = credit.samples_wanted

    def hold_silence(self, pcm: bytes) -> None:
        """Keep silence before the first sound, if the client wants it."""
        if self.options.keeps_silence:
            self.held_pcm += pcm

    def first_audio(self, pcm: bytes, silent_bytes: int) -> bytes:
        """Return what is sent first of `pcm`, which begins with `silent_bytes` of silence."""
        if not self.options.keeps_silence:
            return pcm[silent_bytes:]
        held, self.held_pcm = self.held_pcm, b""
        return held + pcm

    def retry(self) -> None:
        """Speak the current sequence again from its start; nothing of it was heard."""
        self.held_pcm = b""
        self.current.retry()

    def record_sent(self, samples: int, now: float) -> float:
        """Count audio that leaves for the listener.

        Returns:
            Seconds of silence before it that late frames caused, not missing text.
        """
        gap_s = self.clock.send(samples, now)
        is_late = not self.waited_for_text
        self.waited_for_text = (
            self.active is not None and self.active.state is SequenceState.STARVED
        )
        return gap_s if is_late else 0.0
