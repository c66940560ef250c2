"""The interface of a network: phonemes to durations, and these to audio part by part."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class Prosody(Protocol):
    """How a phoneme string is said."""

    @property
    def borders(self) -> tuple[int, ...]:
        """First frame of each phoneme, and the frame after the last one.

        [0] is the first frame of the first phoneme; frames before it are silence.
        """
        ...

    @property
    def frames(self) -> int:
        """Length of the speech, with the silence at both of its ends."""
        ...

    def cut_near(self, frame: int) -> int:
        """Return the frame near `frame` at which the audio is best cut into parts."""
        ...


class Decoder(Protocol):
    """Makes the audio of one phoneme string, in order."""

    def samples(self, end: int, *, is_last: bool) -> Floats:
        """Make the next samples: of the frames before `end`, or all that remain."""
        ...


class Network(Protocol):
    """One voice. Threads may share it: each runs it on a core of its own."""

    @property
    def hop_samples(self) -> int:
        """Samples of a frame."""
        ...

    @property
    def part_frames(self) -> tuple[int, ...]:
        """Frames of the first parts and of all later ones."""
        ...

    def knows(self, phoneme: str) -> bool:
        """Whether it has the phoneme, mark or pause."""
        ...

    def prosody(self, phonemes: str, speed: float) -> Prosody:
        """Find the durations of a phoneme string; `speed` divides them."""
        ...

    def decoder(self, prosody: Any, start: int, noise: np.random.Generator) -> Decoder:
        """Begin the audio of what `prosody` has returned at a frame; some need random numbers."""
        ...
