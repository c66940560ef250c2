"""The listener's clock: where the engine's audio and words are heard.

The engine counts the samples that it generates. Most listeners hear them as they are, on a
`ListenerClock`. A context with markup, or at a speed that its engine does not speak at, has a
`ChangedClock`.
"""

import math
from collections.abc import Iterable, Sequence

from voiceagent_tts.core import AudioChunk, Pause, WordTimestamp


class ListenerClock:
    """Maps one context's engine audio and word times onto the listener's clock, which is the same.

    Attributes:
        end_sample: end of the audio so far, on the listener's clock.
    """

    def __init__(self) -> None:
        self.end_sample = 0

    def push_audio(self, chunk: AudioChunk) -> AudioChunk | None:
        """Return the engine's next audio as the listener gets it, as far as it is known."""
        self.end_sample = chunk.end_sample
        return chunk

    def expect_break(self, pause: Pause) -> None:
        """Hold the words after a break, which `breaks_before` will put into the audio."""

    def breaks_before(self, char_end: int) -> Iterable[Sequence[AudioChunk]]:
        """Insert and yield the breaks in the text before a character, whose audio is complete."""
        return ()

    def drain(self, char_end: int) -> Sequence[AudioChunk]:
        """Return the audio that is held of the text before `char_end`, if any."""
        return ()

    def to_engine_samples(self, samples: int) -> int:
        """Return the samples that the engine must generate so that `samples` can be played."""
        return samples

    @property
    def is_identity(self) -> bool:
        """Whether positions on both clocks are the same."""
        return True

    @property
    def char_limit(self) -> int | None:
        """Start of the text whose place is not known yet, after a break; None without a break."""
        return None

    def char_at(self, listener_sample: float) -> int:
        """Return the end of the text that is heard before a position, as breaks show it; else 0."""
        return 0

    def place(self, timestamp: WordTimestamp) -> WordTimestamp:
        """Move a word's time from the engine's clock to the listener's."""
        return timestamp

    def to_listener(self, engine_sample: int, char_start: int) -> float:
        """Return where the listener hears a sample of the word at `char_start`."""
        return engine_sample

    def to_engine(self, listener_sample: float, *, in_break: int) -> int:
        """Return the engine's sample that the listener hears at a position, rounded up.

        Args:
            listener_sample: on the listener's clock.
            in_break: what is added to a break's place in the engine's audio for a sample in it.
        """
        return math.ceil(listener_sample)
