"""What is known of a voice: how loud it is, what its sound is like on average, and its pace.

Features become comparable between voices when each voice's average is taken away. Nothing here
looks ahead: a frame is judged by what came before it. This module knows no words and no reference.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from voiceagent_tts.aligner.online.features import CEPSTRA, WIDTH, Floats, Frames

TRACTS = (0.95, 1.05, 1.15, 1.25)
"""Of a voice that is not known yet: from a man's to a woman's, against the embedded voice's."""
TRIAL_FRAMES = 200
"""Frames with sound after which the best of them is chosen."""

_SILENCE_BELOW_LEVEL = 10.0
"""A frame is silent whose energy is so much (natural logarithm: 43 dB) under the voice's level."""
SILENT_LEVEL = -14.0
"""Log energy (-61 dBFS) under which nothing is a voice."""
_MOST_FRAMES = 12_000
"""Frames after which an average moves no more slowly: two minutes of sound."""
_LEAST_VARIANCE = np.float32(1e-4)
_FADING_CEPSTRA = 9.0
"""The higher a cepstrum, the more it tells of the voice and the less of the word."""


def _weights() -> Floats:
    """Of each feature [WIDTH], in the mean square 1."""
    weights = np.tile(np.exp(-np.arange(CEPSTRA) / _FADING_CEPSTRA), WIDTH // CEPSTRA)
    return (weights / np.sqrt(np.square(weights).mean())).astype(np.float32)


_WEIGHTS = _weights()


@dataclass(frozen=True, slots=True)
class Average:
    """Mean and mean square of features [WIDTH], and how many frames they rest on; a value."""

    frames: int = 0
    mean: Floats = field(default_factory=lambda: np.zeros(WIDTH, np.float32))
    square: Floats = field(default_factory=lambda: np.ones(WIDTH, np.float32))

    def including(self, features: Floats) -> "Average":
        """The average when `features` [N, WIDTH] count too."""
        total = self.frames + len(features)
        if not len(features):
            return self
        share = np.float32(len(features) / total)
        return Average(
            min(total, _MOST_FRAMES),
            self.mean + share * (features.mean(axis=0) - self.mean),
            self.square + share * (np.square(features).mean(axis=0) - self.square),
        )

    def normalized(self, features: Floats) -> Floats:
        """`features` less the mean, in units of the standard deviation, weighted."""
        variance = np.maximum(self.square - np.square(self.mean), _LEAST_VARIANCE)
        return np.multiply(features - self.mean, _WEIGHTS / np.sqrt(variance), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Pace:
    """How much longer a voice takes than the embedded voice at its normal pace.

    Attributes:
        slowness: above 1.0 where it is slower.
        frames: of the embedded voice at its normal pace, on which this rests.
    """

    slowness: float = 1.0
    frames: float = 100.0

    def including(self, frames: int, normal_frames: float) -> "Pace":
        """The pace when words count too that took `frames`, and normally take `normal_frames`."""
        total = self.frames + normal_frames
        slowness = (self.slowness * self.frames + frames) / total
        return Pace(min(max(slowness, 0.5), 2.0), min(total, _MOST_FRAMES / 4))


@dataclass(frozen=True, slots=True)
class VoiceSound:
    """What one voice sounds like.

    Attributes:
        level: log energy of its loudest frame.
        average: of its frames with sound.
    """

    level: float = SILENT_LEVEL
    average: Average = field(default_factory=Average)

    def hear(self, frames: Frames) -> tuple["VoiceSound", Frames]:
        """Take the next frames; returns what is known then, and those with sound, normalized."""
        levels = np.maximum.accumulate(np.append(np.float32(self.level), frames.log_energies))
        floor = np.maximum(levels[1:] - _SILENCE_BELOW_LEVEL, SILENT_LEVEL)
        loud = frames.only(frames.log_energies > floor)
        average = self.average.including(loud.features)
        known = replace(self, level=float(levels[-1]), average=average)
        return known, replace(loud, features=average.normalized(loud.features))


@dataclass(slots=True)
class Voice:
    """One voice, shared by all of its contexts: what one has learnt the others know at once.

    Attributes:
        sound: what it sounds like.
        pace: of its words.
        tract: how much higher its frequencies are than the embedded voice's; None while unknown.
        handicaps: [TRACTS], what each has cost more than the best, while it is unknown.
        tried_frames: on which these rest.
    """

    sound: VoiceSound = field(default_factory=VoiceSound)
    pace: Pace = field(default_factory=Pace)
    tract: float | None = None
    handicaps: Floats = field(default_factory=lambda: np.zeros(len(TRACTS), np.float32))
    tried_frames: int = 0

    def compare(self, frames: int, costs: Floats) -> None:
        """A context ended after so many frames, each of `TRACTS` at its costs [TRACTS]."""
        handicaps = self.handicaps + costs
        self.handicaps = handicaps - handicaps.min()
        self.tried_frames += frames
        if self.tract is None and self.tried_frames >= TRIAL_FRAMES:
            self.tract = TRACTS[int(np.argmin(self.handicaps))]
