"""How probable it is that a word begins where the search found it.

The search is unsure where the audio fits its words badly, where a path that ends elsewhere costs
little more than the cheapest one, and where it had to repeat or skip more of the words than usual.
Where it has left out sound that is as loud as speech, the word may as well have begun there.
"""

import math
from collections.abc import Sequence

import numpy as np

from voiceagent_tts.aligner.online.features import Booleans, Floats, Integers

_COST_FRAMES = 150
"""Speech frames after the start of a word whose costs describe how well it fits: a path that ran
ahead costs more from where it meets its mistake."""
_WORST_FRAMES = 24
_WORST_FRAMES_BEFORE, _WORST_FRAMES_AFTER = 48, 104
"""Speech frames around the start of a word among which the worst `_WORST_FRAMES` in a row count, as
long as a short word: sound that the text lacks costs much, but only for a short time."""
_MARGIN_FRAMES_BEFORE, _MARGIN_FRAMES_AFTER = 10, 40
"""Speech frames around the start of a word in which low margins are a doubt about it."""
_MAX_FRAMES = 40
"""Speech frames since the start of a word from which more say nothing."""
_BENT_FRAMES_BEFORE, _BENT_FRAMES_AFTER = 40, 60
_USUAL_BENT = 0.25
"""Share of the speech frames around the start of a word that repeat or skip a reference frame in
ordinary speech. A path with more is bent to sound that is not its words."""
_LEFT_OUT_WITHIN_FRAMES = 60
"""Frames on either side of a speech frame in which loud sound that was left out is counted."""
_MAX_LEFT_OUT = 5
"""More is the length of a vowel, which may be the word itself."""
_LEFT_OUT_CONFIDENCE = 0.5
"""Highest confidence of a word next to loud sound that no word explains: the word may be there."""
_LOUD_NATS = 1.0
"""How far below the mean log energy of speech a frame is as loud as speech; breaths are quieter."""
_OFFSET = 7.92
_PER_COST, _PER_WORST_COST = -1.28, -0.40
_PER_MARGIN, _PER_FRAME, _PER_BENT = 0.0714, 0.0143, -6.27
"""Logistic regression of "the start is within 200 ms of the truth" for 21,089 words of people and
of voices that the phone model had not heard, in 42 conditions, and for 1,485 words of texts that
were not said, which count 0.3 each. The offset is lower by 0.6 than the regression's: of the words
from 0.95 on, 0.1 % are further off then, and in no condition more than 1.5 %."""


class PathEvidence:
    """How sure the search was along a path.

    Args:
        frames: [N, 4], of each speech frame: cost, margin, 1.0 where a reference frame is repeated
            or skipped, and the number of frames as loud as speech that were left out near.
    """

    def __init__(self, frames: Floats) -> None:
        self.frames = frames
        sums = np.zeros((3, len(frames) + 1))
        np.cumsum(frames[:, :3].T, axis=1, out=sums[:, 1:])
        # Lists, because few of their items are read, and an array takes ten times as long for one.
        self._costs, self._margins, self._bent = sums.tolist()
        """Sums of cost, margin and the third of all frames before each, and of all frames."""
        length = max(1, min(_WORST_FRAMES, len(frames)))
        self._costs_in_a_row = (sums[0, length:] - sums[0, :-length]) / length
        """Mean cost of the `_WORST_FRAMES` frames from each on, or of all where there are fewer."""

    @classmethod
    def of(
        cls,
        search_evidence: Floats,
        reference_frames: Integers,
        log_energies: Floats,
        is_speech: Booleans,
    ) -> "PathEvidence":
        """The evidence along a path of N frames.

        search_evidence: [N, 2], cost and margin at each frame; reference_frames: [N], the one that
        each is at; log_energies: [N]; is_speech: [N], whether the path has them in a word or in a
        gap.
        """
        frames = reference_frames[is_speech]
        found = np.empty((len(frames), 4), np.float32)
        found[:, :2] = search_evidence[is_speech]
        found[:, 2] = np.diff(frames, prepend=frames[:1] - 1) != 1
        found[:, 3] = _left_out_near(log_energies, is_speech)
        return cls(found)

    def start_confidence(self, place: int) -> float:
        """Probability that a word begins within 200 ms of where its path says, rather too low.

        It begins at the speech frame `place`, below N.
        """
        margin = _mean(self._margins, place - _MARGIN_FRAMES_BEFORE, place + _MARGIN_FRAMES_AFTER)
        bent = _mean(self._bent, place - _BENT_FRAMES_BEFORE, place + _BENT_FRAMES_AFTER)
        logit = (
            _OFFSET
            + _PER_COST * _mean(self._costs, place, place + _COST_FRAMES)
            + _PER_WORST_COST * self._worst_cost(place)
            + _PER_MARGIN * margin
            + _PER_FRAME * min(len(self.frames) - place, _MAX_FRAMES)
            + _PER_BENT * max(bent - _USUAL_BENT, 0.0)
        )
        confidence = 1.0 / (1.0 + math.exp(-logit))
        is_beside_left_out = self.frames[place, 3] > _MAX_LEFT_OUT
        return min(confidence, _LEFT_OUT_CONFIDENCE) if is_beside_left_out else confidence

    def _worst_cost(self, place: int) -> float:
        end = min(place + _WORST_FRAMES_AFTER, len(self.frames)) - _WORST_FRAMES + 1
        near = self._costs_in_a_row[max(place - _WORST_FRAMES_BEFORE, 0) : max(end, 1)]
        return float(near.max())


def _mean(sums: Sequence[float], first: int, end: int) -> float:
    """Mean of the values in a range that exist, of which `sums` has the sum before each."""
    first, end = max(first, 0), min(end, len(sums) - 1)
    return (sums[end] - sums[first]) / (end - first)


def _left_out_near(log_energies: Floats, is_speech: Booleans) -> Floats:
    """Number of frames as loud as speech that a path left out near each speech frame, [S]."""
    places = np.flatnonzero(is_speech)
    if len(places) in (0, len(is_speech)):
        return np.zeros(len(places), np.float32)
    is_loud = log_energies > log_energies[is_speech].mean() - _LOUD_NATS
    is_left_out = is_loud & ~is_speech
    if not is_left_out.any():
        return np.zeros(len(places), np.float32)
    left_out = np.concatenate(([0], np.cumsum(is_left_out)))
    before = np.maximum(places - _LEFT_OUT_WITHIN_FRAMES, 0)
    after = np.minimum(places + _LEFT_OUT_WITHIN_FRAMES, len(is_speech))
    return (left_out[after] - left_out[before]).astype(np.float32)
