"""Viterbi search for the reference frame that the audio has reached, and the times of its words.

A path stays at a reference frame, moves to the next one, or skips one; staying and skipping cost.
Before a word it may be in a pause. Only a window of the reference around the head is searched, so a
step costs the same however long the context is. This module knows no phones and no text: costs are
given to it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voiceagent_tts.aligner.online.confidence import start_confidence
from voiceagent_tts.aligner.online.espeak_reference import ReferenceWord
from voiceagent_tts.aligner.online.features import Booleans, Floats, Integers
from voiceagent_tts.core import WordTimestamp, ms_to_samples

STAY_COST = np.float32(2.0)
"""Transition cost of an audio frame that repeats a reference frame."""
SKIP_COST = np.float32(1.0)
"""Transition cost of a reference frame that is left out, added to the emission cost."""
PAUSE_ENTRY_COST = np.float32(12.0)
"""Transition cost into a pause, which keeps the closure of a plosive from becoming one."""
_LEFT_PAUSE, _ENTERED_PAUSE = 3, 4
"""Values of a backpointer: from the pause before a frame to that frame, and, added to the step of
the frame itself, from the last frame into the pause."""
_CLOSING_COST = 60.0
"""How much more a path that ends with the last word may cost than the cheapest path."""
_FRAMES_BEHIND_HEAD = 150
"""Reference frames before the head that a path may still be at."""
_FRAMES_AHEAD_OF_HEAD = 250
_FAR_FRAMES = 20
"""Reference frames between the ends of two paths that place words differently: 200 ms."""
_MAX_MARGIN = 60.0
"""Greater margins say no more."""
MAX_TRACED_FRAMES = 3_000
"""Audio frames that can be traced back (30 s); the oldest are dropped first."""

PAUSE_SAMPLES = ms_to_samples(70)
"""Distance between the centres of two speech frames that counts as a pause: longer than the
closure of a plosive."""
_ONSET_FRAMES = 3
"""A word of which at most this many frames lie before a pause begins after the pause."""

Backpointers = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class PathEnd:
    """Where a path ends: at a reference frame, or in the pause before it."""

    frame: int
    is_pause: bool


class ViterbiSearch:
    """Finds the cheapest paths of the audio through a reference that may still grow."""

    def __init__(self) -> None:
        self._window_start = 0
        """Reference frame at which the search window begins."""
        self._costs = np.zeros((2, 0), np.float32)
        """[2, window + 1], cost of the cheapest path to each frame of the window, and
        to a pause before that frame; the last frame is only a pause after the window."""
        self._backpointers: deque[tuple[int, Backpointers]] = deque(maxlen=MAX_TRACED_FRAMES)
        """For each audio frame: start of its window, and the steps that led to each frame and to
        the pause before it, [window + 1]."""
        self._evidence: deque[tuple[float, float]] = deque(maxlen=MAX_TRACED_FRAMES)
        """For each audio frame, as `evidence`."""
        self._has_paths = False
        """Whether an audio frame has come since the last restart."""
        self.end = PathEnd(0, is_pause=True)
        """Where the cheapest path ends."""

    @property
    def head(self) -> int:
        """Reference frame that the cheapest path has reached; the next one before any audio."""
        return max(self.end.frame - self.end.is_pause, self._window_start)

    def restart(self, reference_frame: int) -> None:
        """Drop all paths; the next audio frame is at `reference_frame` or one after it."""
        self.end, self._window_start = PathEnd(reference_frame, is_pause=True), reference_frame
        self._has_paths = False
        self._backpointers.clear()
        self._evidence.clear()

    def window(self, reference_length: int) -> range:
        """Reference frames that the next audio frames can reach."""
        start = max(self._window_start, self.head - _FRAMES_BEHIND_HEAD)
        return range(start, min(self.head + _FRAMES_AHEAD_OF_HEAD, reference_length))

    def advance(
        self,
        window: range,
        emission_costs: Floats,
        pause_costs: Floats,
        starts: Booleans,
    ) -> None:
        """Extend the paths by the next audio frames.

        Args:
            window: the last result of `window()`.
            emission_costs: [N, len(window)], cost of each audio frame at the reference frames of
                the window.
            pause_costs: [N], cost of each audio frame in a pause.
            starts: [len(window) + 1], whether a pause may lie before each frame of the window, and
                before the one after it.
        """
        costs = self._moved_costs(window)
        entry_costs = np.where(starts, PAUSE_ENTRY_COST, np.float32(np.inf))
        for row, pause_cost in zip(emission_costs, pause_costs, strict=True):
            if self._has_paths:
                costs, backpointers = _step(costs, row, pause_cost, entry_costs)
            else:
                costs = _initial_costs(row, pause_cost)
                backpointers = np.zeros(costs.shape[1:], np.uint8)
                self._has_paths = True
            self._backpointers.append((window.start, backpointers))
        is_pause, place = map(int, np.unravel_index(np.argmin(costs), costs.shape))
        lowest = float(costs[is_pause, place])
        frames = len(emission_costs)
        margin = self._margin(costs - np.float32(lowest), place)
        self._evidence.extend([(lowest / frames, margin)] * frames)
        # Costs are kept relative to the lowest, so they do not grow with the context.
        self._window_start, self._costs = window.start, costs - np.float32(lowest)
        self.end = PathEnd(self._window_start + place, bool(is_pause))

    @property
    def evidence(self) -> Floats:
        """How sure the search was at each audio frame, [N, 2].

        The cost of the cheapest path per frame, and how much more the cheapest path cost that ended
        elsewhere; both are those of the frames that came together.
        """
        return np.array(self._evidence, np.float32).reshape(-1, 2)

    def backtrace(self, end: "PathEnd") -> tuple[Integers, Booleans]:
        """The cheapest path to `end`.

        Returns:
            [N], reference frame of each audio frame, or the one after the pause that it is in; and
            [N], whether it is in no pause.
        """
        path = np.empty(len(self._backpointers), np.int64)
        is_speech = np.empty(len(path), np.bool_)
        place, is_pause = end.frame, end.is_pause
        for index, (start, backpointers) in enumerate(reversed(self._backpointers), start=1):
            path[-index], is_speech[-index] = place, not is_pause
            step = int(backpointers[place - start])
            if is_pause:
                is_pause = step < _ENTERED_PAUSE
                place -= not is_pause
            elif step % _ENTERED_PAUSE == _LEFT_PAUSE:
                is_pause = True
            else:
                place -= step % _ENTERED_PAUSE
        return path, is_speech

    def end_near(self, expected: int) -> "PathEnd":
        """Where a path ends that should have reached the reference frame `expected`.

        That is there or in the pause after it if such a path costs little more than the cheapest,
        else the end of the cheapest path up to it, and that of the cheapest of all if every path
        has passed `expected`.
        """
        if not self._has_paths:
            return PathEnd(expected, is_pause=False)
        speech, pause = self._costs
        # The first entry is the pause before the window.
        speech = np.insert(speech, 0, np.inf)[:-1]
        costs = np.minimum(speech, pause)[: max(0, expected + 2 - self._window_start)]
        if not np.isfinite(costs).any():
            return self.end
        is_in_window = expected + 1 < self._window_start + len(costs)
        is_near = is_in_window and costs[-1] <= costs.min() + _CLOSING_COST
        place = len(costs) - 1 if is_near else int(np.argmin(costs))
        is_pause = bool(pause[place] < speech[place])
        return PathEnd(self._window_start + place - (not is_pause), is_pause)

    def drop_oldest(self, count: int) -> None:
        """Drop the first `count` audio frames; a backtrace no longer includes them."""
        for _ in range(count):
            self._backpointers.popleft()
            self._evidence.popleft()

    @staticmethod
    def _margin(costs: Floats, place: int) -> float:
        """Lowest of `costs` that is not near `place`, at most `_MAX_MARGIN`."""
        parts = np.split(costs, (max(0, place - _FAR_FRAMES), place + _FAR_FRAMES + 1), axis=1)
        return min(float(part.min(initial=_MAX_MARGIN)) for part in parts[::2])

    def _moved_costs(self, window: range) -> Floats:
        """[2, len(window) + 1], the costs so far; infinite outside the last window."""
        costs = np.full((2, len(window) + 1), np.inf, np.float32)
        if self._has_paths:
            kept = self._costs[:, window.start - self._window_start :][:, : len(window) + 1]
            costs[:, : kept.shape[1]] = kept
        return costs


def _initial_costs(row: Floats, pause_cost: float) -> Floats:
    """Costs after the first audio frame.

    It is at the first reference frame, or skips it, or lies in a pause before it.
    """
    costs = np.full((2, len(row) + 1), np.inf, np.float32)
    costs[0, 0] = row[0]
    costs[0, 1:-1][:1] = row[1:2] + SKIP_COST
    costs[1, 0] = pause_cost
    return costs


def _step(
    costs: Floats,
    row: Floats,
    pause_cost: np.float32,
    entry_costs: Floats,
) -> tuple[Floats, Backpointers]:
    """Costs [2, window + 1] after one more audio frame, and how they came about."""
    speech, pause = costs
    moved = np.full_like(costs, np.inf)
    best = moved[0, :-1]
    np.add(speech[:-1], STAY_COST, out=best)
    backpointers = np.zeros(speech.shape, np.uint8)
    steps = backpointers[:-1]
    for step, arriving in ((1, speech[:-2]), (2, speech[:-3] + SKIP_COST)):
        is_better = arriving < best[step:]
        np.copyto(best[step:], arriving, where=is_better)
        steps[step:][is_better] = step
    is_better = pause[:-1] < best
    np.copyto(best, pause[:-1], where=is_better)
    steps[is_better] = _LEFT_PAUSE
    best += row
    moved[1] = pause
    entering = speech[:-1] + entry_costs[1:]
    is_better = entering < pause[1:]
    np.copyto(moved[1, 1:], entering, where=is_better)
    backpointers[1:][is_better] += _ENTERED_PAUSE
    moved[1] += pause_cost
    return moved, backpointers


@dataclass(frozen=True, slots=True)
class AlignmentPath:
    """The reference frame that the audio was at, for each of its speech frames.

    Attributes:
        reference_frames: [N] int64, non-decreasing.
        centres: [N], sample at the centre of each speech frame.
        evidence: [N, 4], how sure the search was at each of them (`path_evidence`).
    """

    reference_frames: Integers
    centres: Sequence[int]
    evidence: Floats

    def has_reached(self, word: ReferenceWord) -> bool:
        """Whether the audio has reached the word."""
        return len(self.reference_frames) > 0 and word.first_frame <= self.reference_frames[-1]

    def passed_before(self, frames: int, sample: int) -> int:
        """Reference frame before which the audio was `frames` speech frames ago, or at `sample`."""
        recent = int(self.reference_frames[-frames]) if len(self.reference_frames) >= frames else 0
        spoken = int(np.searchsorted(self.centres, sample))
        return max(recent, int(self.reference_frames[spoken - 1]) + 1 if spoken else 0)

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
        confidence = start_confidence(self.evidence, first) if word.is_exact else 0.0
        first = self._after_pause(first, onset)
        start = max(self.centres[first] + word.first_offset, 0)
        if end == len(self.reference_frames):
            return WordTimestamp(word.word, start, None, confidence)
        if end <= first:
            return WordTimestamp(word.word, start, start, confidence=0.0)
        end_sample = max(self.centres[end - 1] + word.end_offset, start)
        return WordTimestamp(word.word, start, end_sample, confidence)

    def _after_pause(self, first: int, end: int) -> int:
        """The first frame after a pause between `first` and `end`; `first` if there is no pause.

        What remains of the sound before a pause, an echo or a breath, can match the beginning of
        the next word as well as anything else.
        """
        for index in range(first + 1, min(end, len(self.reference_frames))):
            if self.centres[index] - self.centres[index - 1] > PAUSE_SAMPLES:
                return index
        return first
