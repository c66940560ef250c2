"""One text, the run of the talker that speaks it, and the context whose runs share one clock.

Numbers and ids only: no tensors and no decisions. Time is passed in.
"""

from collections import deque
from dataclasses import dataclass, field

from voiceagent_tts.core import FRAME_S, FRAME_SAMPLES, SAMPLE_RATE_HZ
from voiceagent_tts.engine.guards import Watch
from voiceagent_tts.seam.commands import Credit

_FRAMES_PER_TEXT_ID = 3
_LONGEST_RUN_FRAMES = 250  # of a text that is still being written; it ends after some 20 s


@dataclass(slots=True)
class Sequence:
    """A text that one run speaks, or a second one where the first came to nothing.

    Attributes:
        is_streaming: frames take the text token by token; otherwise the prompt holds all of it.
        ids: of the turn, as far as it is written.
        text_ids: how many ids of text it has had in all.
        char_end: how far into the client's text it reaches.
        language: code, or None to leave it to the model.
        is_open: more text may follow.
        is_fed: its run has all of its text.
        is_over: its run has ended, maybe before its text did.
        is_retried: its run is the second.
        watch: what its run has made.
        fed_ids: how many of `ids` its run has been fed.
    """

    is_streaming: bool
    ids: list[int] = field(default_factory=list[int])
    text_ids: int = 0
    char_end: int = 0
    language: str | None = None
    is_open: bool = True
    is_fed: bool = False
    is_over: bool = False
    is_retried: bool = False
    watch: Watch = field(default_factory=Watch)
    fed_ids: int = 0

    @property
    def has_new_ids(self) -> bool:
        """Whether there are ids that its run has not been fed."""
        return self.fed_ids < len(self.ids)

    @property
    def likely_frames(self) -> int:
        """How many frames its run is likely to make."""
        return _LONGEST_RUN_FRAMES if self.is_open else _FRAMES_PER_TEXT_ID * self.text_ids

    def take_new_ids(self) -> list[int]:
        """The ids to feed next; a run takes each once."""
        ids = self.ids[self.fed_ids :]
        self.fed_ids = len(self.ids)
        self.is_fed = not self.is_open
        return ids

    def retry(self) -> None:
        """Let a second run speak it, from the start."""
        self.is_retried, self.is_fed, self.fed_ids = True, False, 0
        self.watch = Watch()


@dataclass(slots=True)
class Run:
    """A sequence in a row, and what has become of its frames.

    Attributes:
        row: of the batch.
        pages: of memory that it is likely to take.
        undecoded_frames: those that the codec has not been given.
        decoding_frames: those whose sound is on its way.
        is_starved: it waits for text.
        is_over: it makes no more frames.
        has_failed: for want of memory, and not because all was said.
    """

    row: int
    pages: int = 1
    undecoded_frames: int = 0
    decoding_frames: int = 0
    is_starved: bool = False
    is_over: bool = False
    has_failed: bool = False

    @property
    def unheard_frames(self) -> int:
        """Frames whose sound has not come."""
        return self.undecoded_frames + self.decoding_frames

    def make(self, *, is_end: bool) -> None:
        """The talker has made a frame, and with `is_end` none follows."""
        self.undecoded_frames += 1
        self.is_over = is_end

    def decode(self, frames: int) -> None:
        """The codec was asked for so many frames."""
        self.undecoded_frames -= frames
        self.decoding_frames += frames

    def sound(self, frames: int) -> None:
        """The sound of so many frames has come."""
        self.decoding_frames -= frames


@dataclass(slots=True)
class Speaker:
    """One context of the engine.

    Attributes:
        context: the server's number.
        instruct: how to speak.
        seed: of every sequence.
        arrival: sorts contexts by age.
        is_batch: nobody listens while it is spoken.
        initial_frames: in its first decode window; None for the ramp's.
        keeps_silence: the silence before its first sound is sent too, together with that.
        speed: how much faster than the engine its listener hears it.
        ids_to_start: how many ids an open sequence needs to begin.
        sequences: those that are not spoken to the end, the one being spoken first.
        run: of the first sequence, while it has a row.
        expects_text: the client may send more.
        end_sample: end of what was sent, on the context's clock.
        samples_wanted: how far it may go.
        playout_end: when its listener has heard what was sent, re-anchored whenever it runs dry.
        waited_for_text: there was none to speak since the last audio: a gap is not the engine's.
        waits_for_memory: there was too little for its next run.
        held_pcm: silence that is kept for its first sound.
    """

    context: int
    instruct: str | None
    seed: int
    arrival: int
    is_batch: bool = False
    initial_frames: int | None = None
    keeps_silence: bool = False
    speed: float = 1.0
    ids_to_start: int = 0
    sequences: deque[Sequence] = field(default_factory=deque[Sequence])
    run: Run | None = None
    expects_text: bool = True
    end_sample: int = 0
    samples_wanted: int = 0
    playout_end: float = 0.0
    waited_for_text: bool = False
    waits_for_memory: bool = False
    held_pcm: bytes = b""

    @property
    def has_credit(self) -> bool:
        """Whether its listener wants more audio than is sent or on its way."""
        on_its_way = 0 if self.run is None else self.run.unheard_frames * FRAME_SAMPLES
        return self.end_sample + on_its_way < self.samples_wanted

    @property
    def has_spoken(self) -> bool:
        """Whether any audio was sent."""
        return self.end_sample > 0

    @property
    def has_text_to_start(self) -> bool:
        """Whether its next sequence has enough text to begin."""
        if not self.sequences:
            return False
        sequence = self.sequences[0]
        return not sequence.is_open or len(sequence.ids) >= self.ids_to_start

    @property
    def can_start(self) -> bool:
        """Whether its next sequence has the text for a run, and its listener wants it."""
        if self.run is not None or self.waits_for_memory:
            return False
        return self.has_text_to_start and self.has_credit

    @property
    def can_speak(self) -> bool:
        """Whether its run can make a frame that its listener wants."""
        run = self.run
        if run is None or run.is_over or run.is_starved:
            return False
        return self.has_credit

    @property
    def undecoded_frames(self) -> int:
        """Frames of its run that the codec has not been given."""
        return 0 if self.run is None else self.run.undecoded_frames

    def lead_s(self, now: float, unsent_frames: int = 0) -> float:
        """Seconds of audio that its listener has still to hear, with frames not sent yet."""
        sent_s = self.playout_end - now if self.playout_end > now else 0.0
        return sent_s + unsent_frames * FRAME_S / self.speed

    def made_lead_s(self, now: float) -> float:
        """The same with all frames that its run has made."""
        run = self.run
        frames = 0 if run is None else run.undecoded_frames + run.decoding_frames
        return self.lead_s(now, frames)

    def take_credit(self, credit: Credit) -> None:
        """Follow the listener; credit never shrinks.

        The server's clock knows less of what was sent and more of when it left: the later end of
        the two is still too early.
        """
        self.playout_end = max(self.playout_end, credit.playout_end)
        self.samples_wanted = max(self.samples_wanted, credit.samples_wanted)

    def hold(self, pcm: bytes) -> None:
        """Its run has been silent so far."""
        if self.keeps_silence:
            self.held_pcm += pcm

    def begin(self, pcm: bytes, silent_bytes: int) -> bytes:
        """What is sent first: `pcm`, which sounds after so much silence."""
        if not self.keeps_silence:
            return pcm[silent_bytes:]
        held, self.held_pcm = self.held_pcm, b""
        return held + pcm

    def retry(self) -> None:
        """Nobody has heard its run: let another speak the same text."""
        self.held_pcm = b""
        self.sequences[0].retry()

    def send(self, samples: int, now: float) -> float:
        """Audio leaves for the listener.

        Returns:
            Seconds of silence that he heard before it for want of frames, not of text.
        """
        is_gap = self.has_spoken and not self.waited_for_text
        gap_s = max(0.0, now - self.playout_end) if is_gap else 0.0
        self.playout_end = max(self.playout_end, now) + samples / SAMPLE_RATE_HZ / self.speed
        self.end_sample += samples
        self.waited_for_text = self.run is not None and self.run.is_starved
        return gap_s
