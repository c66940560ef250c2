"""Viterbi search for the reference frame that the audio has reached, and the times of its words.

A path stays at a reference frame, moves to the next one, or skips one; staying and skipping cost.
Several renderings of the reference, alike frame for frame, compete, and a path keeps to one of
them. Only a window of the reference around the head is searched, so a step costs the same however
long the context is. This module knows no features and no text: emission costs are given to it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voiceagent_tts.aligner.online.espeak_reference import ReferenceWord
from voiceagent_tts.aligner.online.features import Floats, Integers
from voiceagent_tts.core import WordTimestamp, ms_to_samples

STAY_COST, SKIP_COST = np.float32(2.0), np.float32(1.0)
"""Transition costs, added to the emission cost: of an audio frame that repeats a reference frame,
and of a reference frame that is left out."""
_CLOSING_COST = 60.0
"""How much more a path that ends with the last word may cost than the cheapest path."""
_FRAMES_BEHIND_HEAD = 150
"""Reference frames before the head that a path may still be at."""
_FRAMES_AHEAD_OF_HEAD = 250
_MEAN_COST_FRAMES = 100
"""Time constant of `mean_cost`, in audio frames: one second."""
MAX_TRACED_FRAMES = 3_000
"""Audio frames that can be traced back (30 s); the oldest are dropped first."""
_MAX_PRIOR_COST = np.float32(1_000.0)
"""Prior cost of a rendering that no path goes through any more."""

PAUSE_SAMPLES = ms_to_samples(70)
"""Distance between the centres of two speech frames that counts as a pause: longer than the
closure of a plosive."""
_ONSET_FRAMES = 3
"""A word of which at most this many frames lie before a pause begins after the pause."""

Backpointers = npt.NDArray[np.uint8]


class ViterbiSearch:
    """Finds the cheapest paths of the audio through a reference that may still grow.

    Args:
        prior_costs: [renderings], how much more than the cheapest each rendering has cost in
            earlier audio.
    """

    def __init__(self, prior_costs: Floats) -> None:
        self._window_start = 0
        """Reference frame at which the search window begins."""
        self._costs = np.zeros((len(prior_costs), 0), np.float32)
        """[renderings, window], cost of the cheapest path to each frame of the window."""
        self._backpointers: deque[tuple[int, Backpointers]] = deque(maxlen=MAX_TRACED_FRAMES)
        """For each audio frame: start of its window, and the step that led to each frame,
        [renderings, window]."""
        self._prior_costs = prior_costs
        """[renderings], prior costs at the last restart."""
        self._has_paths = False
        """Whether an audio frame has come since the last restart."""
        self.head = 0
        """Reference frame at which the cheapest path ends."""
        self.best_rendering = 0
        """Rendering that the cheapest path goes through."""
        self.mean_cost = 0.0
        """Recent cost per audio frame: how unlike the reference the audio is."""

    @property
    def renderings(self) -> int:
        """Number of renderings that compete."""
        return len(self._costs)

    @property
    def prior_costs(self) -> Floats:
        """[renderings], how much more than the cheapest each rendering has cost so far."""
        if not self._has_paths:
            return self._prior_costs
        ends = self._costs.min(axis=1)
        return np.minimum(ends - ends.min(), _MAX_PRIOR_COST)

    def keep_rendering(self, rendering: int) -> None:
        """Continue with one rendering; drop the paths through the others."""
        self.best_rendering = 0
        self._costs = self._costs[rendering : rendering + 1]
        self._prior_costs = self._prior_costs[rendering : rendering + 1]
        kept = ((start, row[rendering : rendering + 1]) for start, row in self._backpointers)
        self._backpointers = deque(kept, maxlen=MAX_TRACED_FRAMES)

    def restart(self, reference_frame: int) -> None:
        """Drop all paths; the next audio frame is at `reference_frame` or one after it."""
        self._prior_costs = self.prior_costs
        self.head, self._has_paths = reference_frame, False
        self._backpointers.clear()

    def window(self, reference_length: int) -> range:
        """Reference frames that the next audio frames can reach."""
        if not self._has_paths:
            start = self.head
        else:
            start = max(self._window_start, self.head - _FRAMES_BEHIND_HEAD)
        return range(start, min(self.head + _FRAMES_AHEAD_OF_HEAD, reference_length))

    def advance(self, window: range, emission_costs: Floats) -> None:
        """Extend the paths by the next audio frames.

        Args:
            window: the last result of `window()`.
            emission_costs: [N, renderings, len(window)], distance of each audio frame from the
                reference frames of the window.
        """
        costs = self._moved_costs(window)
        for row in emission_costs:
            if self._has_paths:
                costs, backpointers = _step(costs, row)
            else:
                costs = _initial_costs(row) + self._prior_costs[:, None]
                backpointers = np.zeros(row.shape, np.uint8)
                self._has_paths = True
            self._backpointers.append((window.start, backpointers))
        self.best_rendering, place = divmod(int(np.argmin(costs)), len(window))
        lowest = float(costs[self.best_rendering, place])
        frames = len(emission_costs)
        self.mean_cost += (lowest / frames - self.mean_cost) * frames / _MEAN_COST_FRAMES
        # Costs are kept relative to the lowest, so they do not grow with the context.
        self._window_start, self._costs = window.start, costs - np.float32(lowest)
        self.head = self._window_start + place

    def backtrace(self, reference_frame: int) -> Integers:
        """[N], reference frame of each audio frame on the cheapest path to `reference_frame`."""
        path = np.empty(len(self._backpointers), np.int64)
        place = reference_frame
        for index, (start, backpointers) in enumerate(reversed(self._backpointers), start=1):
            path[-index] = place
            place -= int(backpointers[self.best_rendering, place - start])
        return path

    def end_frame(self, expected: int) -> int:
        """Reference frame at which a path ends that should have reached `expected`.

        That is `expected` if its path costs little more than the cheapest, else the end of the
        cheapest path up to it, and the head if every path has passed `expected`.
        """
        if not self._has_paths:
            return expected
        costs = self._costs[self.best_rendering, : max(0, expected + 1 - self._window_start)]
        if not np.isfinite(costs).any():
            return self.head
        is_in_window = expected < self._window_start + len(costs)
        if is_in_window and costs[-1] <= costs.min() + _CLOSING_COST:
            return expected
        return self._window_start + int(np.argmin(costs))

    def drop_oldest(self, count: int) -> None:
        """Drop the first `count` audio frames; a backtrace no longer includes them."""
        for _ in range(count):
            self._backpointers.popleft()

    def _moved_costs(self, window: range) -> Floats:
        """[renderings, len(window)], the costs so far; infinite outside the last window."""
        costs = np.full((self.renderings, len(window)), np.inf, np.float32)
        if self._has_paths:
            kept = self._costs[:, window.start - self._window_start :][:, : len(window)]
            costs[:, : kept.shape[1]] = kept
        return costs


def _initial_costs(row: Floats) -> Floats:
    """Costs after the first audio frame: it is at the first reference frame or skips it."""
    costs = np.full(row.shape, np.inf, np.float32)
    costs[:, :1] = row[:, :1]
    costs[:, 1:2] = row[:, 1:2] + SKIP_COST
    return costs


def _step(costs: Floats, row: Floats) -> tuple[Floats, Backpointers]:
    """Costs [renderings, window] after one more audio frame, and the steps that led there."""
    best = costs + STAY_COST
    backpointers = np.zeros(costs.shape, np.uint8)
    for step, arriving in ((1, costs[:, :-1]), (2, costs[:, :-2] + SKIP_COST)):
        is_better = arriving < best[:, step:]
        np.copyto(best[:, step:], arriving, where=is_better)
        backpointers[:, step:][is_better] = step
    return best + row, backpointers


@dataclass(frozen=True, slots=True)
class AlignmentPath:
    """The reference frame that the audio was at, for each of its speech frames.

    Attributes:
        reference_frames: [N] int64, non-decreasing.
        centres: [N], sample at the centre of each speech frame.
    """

    reference_frames: Integers
    centres: Sequence[int]

    def has_reached(self, word: ReferenceWord) -> bool:
        """Whether the audio has reached the word."""
        return len(self.reference_frames) > 0 and word.first_frame <= self.reference_frames[-1]

    def frames_in(self, word: ReferenceWord) -> int:
        """Number of speech frames inside the word."""
        first, end = np.searchsorted(self.reference_frames, (word.first_frame, word.end_frame))
        return int(end - first)

    def time_of(self, word: ReferenceWord) -> WordTimestamp:
        """Times of a word that the audio has reached; its end is None while it is not reached."""
        borders = (word.first_frame, word.first_frame + _ONSET_FRAMES, word.end_frame)
        first, onset, end = (
            int(place) for place in np.searchsorted(self.reference_frames, borders)
        )
        first = self._after_pause(first, onset)
        start = max(self.centres[first] + word.first_offset, 0)
        if end == len(self.reference_frames):
            return WordTimestamp(word.word, start, None, word.is_exact)
        if end <= first:
            return WordTimestamp(word.word, start, start, is_exact=False)
        end_sample = max(self.centres[end - 1] + word.end_offset, start)
        return WordTimestamp(word.word, start, end_sample, word.is_exact)

    def _after_pause(self, first: int, end: int) -> int:
        """The first frame after a pause between `first` and `end`; `first` if there is no pause.

        What remains of the sound before a pause, an echo or a breath, can match the beginning of
        the next word as well as anything else.
        """
        for index in range(first + 1, min(end, len(self.reference_frames))):
            if self.centres[index] - self.centres[index - 1] > PAUSE_SAMPLES:
                return index
        return first
