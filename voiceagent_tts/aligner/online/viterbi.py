"""Which frame of a reference a sound has reached: the cheapest path, frame by frame.

A path stays at a reference frame, goes to the next, or skips one; staying and skipping cost.
Several renderings of the same reference, frame for frame alike, may compete: a path keeps to one of
them. Only a window of the reference around the head is looked at, so a step costs the same however
long the context is. This module knows no words and no clock: it is given distances.
"""

from collections import deque

import numpy as np
import numpy.typing as npt

from voiceagent_tts.aligner.online.features import Floats, Integers

STAY_COST, SKIP_COST = np.float32(2.0), np.float32(1.0)
"""Beside the distance, of a frame of the sound that repeats a reference frame, and of leaving a
reference frame out."""
_CLOSING_COST = 60.0
"""What a path may cost more than the cheapest that has come to the end of all words."""
_BEHIND = 150
"""Frames of the reference behind the head that a path may still be at."""
_AHEAD = 250
_STRAIN_FRAMES = 100
MAX_TRACED_FRAMES = 3_000
"""Of the sound, that are remembered: 30 s; the oldest are forgotten first."""
_MOST_HANDICAP = np.float32(1_000.0)
"""Of a rendering that no path goes through any more."""

Steps = npt.NDArray[np.uint8]


class Paths:
    """Paths of a sound through a reference that may still grow.

    Args:
        handicaps: [renderings that compete], what each has cost more than the cheapest before.
    """

    def __init__(self, handicaps: Floats) -> None:
        self._low = 0
        """Reference frame at which the window begins."""
        self._costs = np.zeros((len(handicaps), 0), np.float32)
        """[renderings, window]: of the cheapest path to each frame of the window."""
        self._steps: deque[tuple[int, Steps]] = deque(maxlen=MAX_TRACED_FRAMES)
        """Of each frame of the sound: where its window began, and how paths came to each frame."""
        self._handicaps = handicaps
        """Those at the last restart."""
        self._is_open = False
        """Whether there are paths: a frame of the sound has come since the last restart."""
        self.head = 0
        """The reference frame at which the cheapest path ends."""
        self.best_rendering = 0
        """The one that this path goes through."""
        self.strain = 0.0
        """What the paths cost lately, a frame: how unlike the reference the sound is."""

    @property
    def renderings(self) -> int:
        """How many compete."""
        return len(self._costs)

    @property
    def handicaps(self) -> Floats:
        """[renderings], what each has cost more than the cheapest so far."""
        if not self._is_open:
            return self._handicaps
        ends = self._costs.min(axis=1)
        return np.minimum(ends - ends.min(), _MOST_HANDICAP)

    def choose(self, rendering: int) -> None:
        """Go on with one rendering alone."""
        self.best_rendering = 0
        self._costs = self._costs[rendering : rendering + 1]
        self._handicaps = self._handicaps[rendering : rendering + 1]
        steps = ((low, row[rendering : rendering + 1]) for low, row in self._steps)
        self._steps = deque(steps, maxlen=MAX_TRACED_FRAMES)

    def restart(self, reference_frame: int) -> None:
        """Forget the sound so far; the next frame is at `reference_frame`, or one after it."""
        self._handicaps = self.handicaps
        self.head, self._is_open = reference_frame, False
        self._steps.clear()

    def window(self, reference_length: int) -> range:
        """The reference frames whose distances the next frames of the sound are asked for."""
        low = max(self._low, self.head - _BEHIND) if self._is_open else self.head
        return range(low, min(self.head + _AHEAD, reference_length))

    def advance(self, window: range, distances: Floats) -> None:
        """Take the next frames of the sound.

        Args:
            window: what `window()` answered.
            distances: [N, renderings, len(window)] from each frame of the sound to those of the
                window.
        """
        costs = self._moved(window)
        for row in distances:
            if self._is_open:
                costs, steps = _stepped(costs, row)
            else:
                costs = _opened(row) + self._handicaps[:, None]
                steps = np.zeros(row.shape, np.uint8)
                self._is_open = True
            self._steps.append((window.start, steps))
        self.best_rendering, place = divmod(int(np.argmin(costs)), len(window))
        gain = float(costs[self.best_rendering, place])
        self.strain += (gain / len(distances) - self.strain) * len(distances) / _STRAIN_FRAMES
        self._low, self._costs = window.start, costs - np.float32(gain)
        self.head = self._low + place

    def trace(self, reference_frame: int) -> Integers:
        """Where the cheapest path to `reference_frame` was at each frame of the sound."""
        path = np.empty(len(self._steps), np.int64)
        place = reference_frame
        for index, (low, steps) in enumerate(reversed(self._steps), start=1):
            path[-index] = place
            place -= int(steps[self.best_rendering, place - low])
        return path

    def end(self, last: int) -> int:
        """Where a path ends that should have come to `last`: there, if that costs little more.

        At the head, where every path has left `last` behind.
        """
        if not self._is_open:
            return last
        costs = self._costs[self.best_rendering, : max(0, last + 1 - self._low)]
        if not np.isfinite(costs).any():
            return self.head
        if last < self._low + len(costs) and costs[-1] <= costs.min() + _CLOSING_COST:
            return last
        return self._low + int(np.argmin(costs))

    def forget(self, count: int) -> None:
        """The first `count` frames of the sound are not traced back to again."""
        for _ in range(count):
            self._steps.popleft()

    def _moved(self, window: range) -> Floats:
        """The costs so far in another window; what was outside is out of reach."""
        costs = np.full((self.renderings, len(window)), np.inf, np.float32)
        if self._is_open:
            kept = self._costs[:, window.start - self._low :][:, : len(window)]
            costs[:, : kept.shape[1]] = kept
        return costs


def _opened(row: Floats) -> Floats:
    costs = np.full(row.shape, np.inf, np.float32)
    costs[:, :1] = row[:, :1]
    costs[:, 1:2] = row[:, 1:2] + SKIP_COST
    return costs


def _stepped(costs: Floats, row: Floats) -> tuple[Floats, Steps]:
    best = costs + STAY_COST
    steps = np.zeros(costs.shape, np.uint8)
    for step, arriving in ((1, costs[:, :-1]), (2, costs[:, :-2] + SKIP_COST)):
        is_better = arriving < best[:, step:]
        np.copyto(best[:, step:], arriving, where=is_better)
        steps[:, step:][is_better] = step
    return best + row, steps
