"""One run of the talker, and the context whose runs follow each other on one clock.

Numbers and ids only: no tensors, no scheduling, no time.
"""

from collections import deque
from dataclasses import dataclass, field

from voiceagent_tts.core import Credit


@dataclass(slots=True)
class Sequence:
    """A text that one run speaks.

    Attributes:
        is_streaming: frames take the text token by token; otherwise the prompt holds all of it.
        new_ids: ids of the turn that no run has been fed.
        text_ids: how many ids of text it has had in all.
        char_end: how far into the client's text it reaches.
        is_open: more text may follow.
        is_fed: a run has all of its text.
        is_over: its run has ended, maybe before its text did.
        frames: how many it has made.
        silent_frames: how many of the last ones were silent.
    """

    is_streaming: bool
    new_ids: list[int] = field(default_factory=list[int])
    text_ids: int = 0
    char_end: int = 0
    is_open: bool = True
    is_fed: bool = False
    is_over: bool = False
    frames: int = 0
    silent_frames: int = 0

    def take_new_ids(self) -> list[int]:
        """The ids to feed next; each is taken once."""
        ids, self.new_ids = self.new_ids, []
        self.is_fed = not self.is_open
        return ids


@dataclass(slots=True)
class Speaker:
    """One context of the engine.

    Attributes:
        context: the server's number.
        voice: name of the voice.
        language: code, or None to leave it to the model.
        instruct: how to speak.
        seed: of every sequence.
        arrival: sorts contexts by age.
        sequences: those that are not spoken to the end, the one being spoken first.
        row: of the batch, while the first sequence is being spoken.
        expects_text: the client may send more.
        end_sample: end of what was sent, on the context's clock.
        samples_wanted: how far it may go.
        playout_end: when its listener has heard what was sent.
    """

    context: int
    voice: str
    language: str | None
    instruct: str | None
    seed: int
    arrival: int
    sequences: deque[Sequence] = field(default_factory=deque[Sequence])
    row: int | None = None
    expects_text: bool = True
    end_sample: int = 0
    samples_wanted: int = 0
    playout_end: float = 0.0

    @property
    def has_credit(self) -> bool:
        """Whether its listener wants more audio."""
        return self.end_sample < self.samples_wanted

    @property
    def has_spoken(self) -> bool:
        """Whether any audio was sent."""
        return self.end_sample > 0

    def take_credit(self, credit: Credit) -> None:
        """Follow the listener; credit never shrinks."""
        self.playout_end = credit.playout_end
        self.samples_wanted = max(self.samples_wanted, credit.samples_wanted)
