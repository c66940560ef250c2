"""How probable it is that a word begins where the search found it.

The search is unsure where the audio fits its words worse than this voice usually does, where a path
that ends elsewhere costs little more than the cheapest one, and where it has left out sound that is
as loud as speech. This module knows no words and no reference.
"""

import math
from dataclasses import dataclass

import numpy as np

from voiceagent_tts.aligner.online.features import Booleans, Floats

_COST_FRAMES = 150
"""Speech frames after the start of a word whose costs describe how well it fits: a path that ran
ahead costs more from where it meets its mistake."""
_MARGIN_FRAMES_BEFORE, _MARGIN_FRAMES_AFTER = 10, 40
"""Speech frames around the start of a word in which low margins are a doubt about it."""
_MAX_FRAMES = 40
"""Speech frames since the start of a word from which more say nothing."""
_SKIPPED_WITHIN_FRAMES = 40
"""Frames before a speech frame in which loud sound that was left out is a doubt about it: the word
may have begun there."""
_MAX_SKIPPED = 15
_LOUD_NATS = 1.0
"""How far below the mean log energy of speech a frame is as loud as speech; breaths are quieter."""
_OFFSET = 2.475
_PER_COST, _PER_TYPICAL_COST = -3.388, 2.946
_PER_MARGIN, _PER_FRAME, _PER_SKIPPED = 0.1106, 0.0362, -0.2121
"""Logistic regression of "the start is within 200 ms of the truth" for 5,144 words of flite's kal16
and slt and of people in 19 conditions. The offset is lower by 0.56 than the regression's, which is
the least at which no condition but "um" has more than 1.1 % of words from 0.95 on that are further
off ("um" has 2.1 %, all of them 0.33 %)."""
_MAX_COUNTED_WORDS = 300


@dataclass(frozen=True, slots=True)
class TypicalCost:
    """What a path through a voice's words usually costs per frame: more in noise, for example.

    Attributes:
        mean: over the words so far; at first that of clear voices in quiet rooms.
        words: number of words that the mean rests on.
    """

    mean: float = 4.8
    words: int = 30

    def including(self, cost: float) -> "TypicalCost":
        """The typical cost with one more word counted."""
        words = self.words + 1
        mean = self.mean + (cost - self.mean) / words
        return TypicalCost(mean, min(words, _MAX_COUNTED_WORDS))


def cost_after(evidence: Floats, place: int) -> float:
    """Cost per frame of the path from the start of a word on; arguments as those below."""
    return float(evidence[place : place + _COST_FRAMES, 0].mean())


def skipped_frames(log_energies: Floats, is_speech: Booleans) -> Floats:
    """Number of frames as loud as speech that a path left out shortly before each speech frame.

    Args:
        log_energies: [N], of the frames of a path.
        is_speech: [N], whether the path has them in a word; the others are in a pause.

    Returns:
        One number for each of the S speech frames, [S].
    """
    if not is_speech.any():
        return np.zeros(0, np.float32)
    is_loud = log_energies > log_energies[is_speech].mean() - _LOUD_NATS
    left_out = np.concatenate(([0], np.cumsum(is_loud & ~is_speech)))
    places = np.flatnonzero(is_speech)
    before = np.maximum(places - _SKIPPED_WITHIN_FRAMES, 0)
    return (left_out[places] - left_out[before]).astype(np.float32)


def start_confidence(evidence: Floats, place: int, typical_cost: float) -> float:
    """Probability that a word begins within 200 ms of where its path says, rather too low.

    Args:
        evidence: [N, 3], for each speech frame the cost of the path, its margin over another path,
            and the frames left out before (`skipped_frames`).
        place: speech frame at which the word begins, below N.
        typical_cost: mean of the voice's `TypicalCost`.
    """
    margins, skipped = evidence[:, 1], evidence[:, 2]
    around = slice(max(0, place - _MARGIN_FRAMES_BEFORE), place + _MARGIN_FRAMES_AFTER)
    logit = (
        _OFFSET
        + _PER_COST * cost_after(evidence, place)
        + _PER_TYPICAL_COST * typical_cost
        + _PER_MARGIN * float(margins[around].mean())
        + _PER_FRAME * min(len(evidence) - place, _MAX_FRAMES)
        + _PER_SKIPPED * min(float(skipped[place]), _MAX_SKIPPED)
    )
    return 1.0 / (1.0 + math.exp(-logit))
