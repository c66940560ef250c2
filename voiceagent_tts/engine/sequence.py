"""One run of the talker, and the context whose runs follow each other on one clock.

Numbers and ids only: no tensors, no scheduling, no time.
"""

from collections import deque
from dataclasses import dataclass, field

from voiceagent_tts.core import Credit
from voiceagent_tts.engine.guards import Watch


@dataclass(slots=True)
class Sequence:
    """A text that one run speaks, or a second one where the first came to nothing.

    Attributes:
        is_streaming: frames take the text token by token; otherwise the prompt holds all of it.
        ids: of the turn, as far as it is written.
        text_ids: how many ids of text it has had in all.
        char_end: how far into the client's text it reaches.
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
class Speaker:
    """One context of the engine.

    Attributes:
        context: the server's number.
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
