"""Viterbi search for the reference frame that the audio has reached, and the times of its words.

A path stays at a reference frame, moves to the next one, or skips one; staying and skipping cost.
Before a word it may be in a gap: a pause, or speech that the text lacks. Only a window of the
reference around the head is searched, so a step costs the same however long the context is. This
module knows no phones and no text: costs are given to it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

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
GAP_ENTRY_COSTS = np.array((12.0, 40.0), np.float32)
"""Transition costs into a pause, which keeps the closure of a plosive from becoming one, and into
unwritten speech, which keeps a word that is pronounced otherwise from becoming that."""
INITIAL_GAP_COSTS = np.array((0.0, 5.0), np.float32)
"""What it costs that the audio begins with a pause, or with unwritten speech."""
_STEP_BITS = 0b111
"""Bits of a backpointer that say how the frame of a word was reached: how many reference frames
further, or, from `_LEFT_GAP` on, from which gap."""
_LEFT_GAP = 3
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


class State(IntEnum):
    """What a path takes an audio frame for; all but a word are gaps between words."""

    WORD = 0
    PAUSE = 1
    UNWRITTEN = 2
    """Speech that the text lacks."""


_ENTERED_BITS = np.array((0, 0b01000, 0b10000), np.uint8)
"""For each state, the bit of a backpointer that says that this gap was entered with the frame."""


@dataclass(frozen=True, slots=True)
class PathEnd:
    """Where a path ends: at a reference frame, or in a gap before it."""

    frame: int
    state: State

    @property
    def is_gap(self) -> bool:
        """Whether the path ends between words."""
        return self.state is not State.WORD


class ViterbiSearch:
    """Finds the cheapest paths of the audio through a reference that may still grow."""

    def __init__(self) -> None:
        self._window_start = 0
        """Reference frame at which the search window begins."""
        self._costs = np.zeros((len(State), 0), np.float32)
        """[State, window + 1], cost of the cheapest path to each frame of the window, and to each
        gap before that frame; the last place is only for gaps after the window."""
        self._backpointers: deque[tuple[int, Backpointers]] = deque(maxlen=MAX_TRACED_FRAMES)
        """For each audio frame: start of its window, and the steps that led to each frame and to
        the gaps before it, [window + 1]."""
        self._evidence: deque[tuple[float, float]] = deque(maxlen=MAX_TRACED_FRAMES)
        """For each audio frame, as `evidence`."""
        self._has_paths = False
        """Whether an audio frame has come since the last restart."""
        self.end = PathEnd(0, State.PAUSE)
        """Where the cheapest path ends."""

    @property
    def head(self) -> int:
        """Reference frame that the cheapest path has reached; the next one before any audio."""
        return max(self.end.frame - self.end.is_gap, self._window_start)

    def restart(self, reference_frame: int) -> None:
        """Drop all paths; the next audio frame is at `reference_frame` or one after it."""
        self.end, self._window_start = PathEnd(reference_frame, State.PAUSE), reference_frame
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
        gap_costs: Floats,
        starts: Booleans,
    ) -> None:
        """Extend the paths by the next audio frames.

        Args:
            window: the last result of `window()`.
            emission_costs: [N, len(window)], cost of each audio frame at the reference frames of
                the window.
            gap_costs: [N, 2], cost of each audio frame in a pause and in unwritten speech.
            starts: [len(window) + 1], whether a gap may lie before each frame of the window, and
                before the one after it.
        """
        costs = self._moved_costs(window)
        entry_costs = np.where(starts, GAP_ENTRY_COSTS[:, None], np.float32(np.inf))
        for row, gaps in zip(emission_costs, gap_costs, strict=True):
            if self._has_paths:
                costs, backpointers = _step(costs, row, gaps, entry_costs)
            else:
                costs = _initial_costs(row, gaps)
                backpointers = np.zeros(costs.shape[1:], np.uint8)
                self._has_paths = True
            self._backpointers.append((window.start, backpointers))
        state, place = map(int, np.unravel_index(np.argmin(costs), costs.shape))
        lowest = float(costs[state, place])
        frames = len(emission_costs)
        margin = self._margin(costs - np.float32(lowest), place)
        self._evidence.extend([(lowest / frames, margin)] * frames)
        # Costs are kept relative to the lowest, so they do not grow with the context.
        self._window_start, self._costs = window.start, costs - np.float32(lowest)
        self.end = PathEnd(self._window_start + place, State(state))

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
            [N], reference frame of each audio frame, or the one after the gap that it is in; and
            [N], whether it is in no gap.
        """
        path = np.empty(len(self._backpointers), np.int64)
        is_speech = np.empty(len(path), np.bool_)
        place, state = end.frame, int(end.state)
        for index, (start, backpointers) in enumerate(reversed(self._backpointers), start=1):
            path[-index], is_speech[-index] = place, state == State.WORD
            step = int(backpointers[place - start])
            reached = step & _STEP_BITS
            if state != State.WORD:
                if step & int(_ENTERED_BITS[state]):
                    place, state = place - 1, State.WORD
            elif reached >= _LEFT_GAP:
                state = State.PAUSE + reached - _LEFT_GAP
            else:
                place -= reached
        return path, is_speech

    def end_near(self, expected: int) -> "PathEnd":
        """Where a path ends that should have reached the reference frame `expected`.

        That is there or in a gap after it if such a path costs little more than the cheapest,
        else the end of the cheapest path up to it, and that of the cheapest of all if every path
        has passed `expected`.
        """
        if not self._has_paths:
            return PathEnd(expected, State.WORD)
        # A gap lies before its frame, so each stands beside the word's frame before it.
        by_state = self._costs.copy()
        by_state[State.WORD] = np.insert(by_state[State.WORD], 0, np.inf)[:-1]
        costs = by_state.min(axis=0)[: max(0, expected + 2 - self._window_start)]
        if not np.isfinite(costs).any():
            return self.end
        is_in_window = expected + 1 < self._window_start + len(costs)
        is_near = is_in_window and costs[-1] <= costs.min() + _CLOSING_COST
        place = len(costs) - 1 if is_near else int(np.argmin(costs))
        state = State(int(np.argmin(by_state[:, place])))
        return PathEnd(self._window_start + place - (state is State.WORD), state)

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
        """[State, len(window) + 1], the costs so far; infinite outside the last window."""
        costs = np.full((len(State), len(window) + 1), np.inf, np.float32)
        if self._has_paths:
            kept = self._costs[:, window.start - self._window_start :][:, : len(window) + 1]
            costs[:, : kept.shape[1]] = kept
        return costs


def _initial_costs(row: Floats, gaps: Floats) -> Floats:
    """Costs after the first audio frame.

    It is at the first reference frame, or skips it, or lies in a gap before it.
    """
    costs = np.full((len(State), len(row) + 1), np.inf, np.float32)
    costs[State.WORD, 0] = row[0]
    costs[State.WORD, 1:-1][:1] = row[1:2] + SKIP_COST
    costs[State.PAUSE :, 0] = INITIAL_GAP_COSTS + gaps
    return costs


def _step(
    costs: Floats, row: Floats, gaps: Floats, entry_costs: Floats
) -> tuple[Floats, Backpointers]:
    """Costs [State, window + 1] after one more audio frame, and how they came about.

    Args:
        costs: [State, window + 1], before the frame.
        row: [window], cost of the frame at each reference frame.
        gaps: [2], its cost in a pause and in unwritten speech.
        entry_costs: [2, window + 1], of both gaps before each reference frame.
    """
    words, before_words = costs[State.WORD], costs[State.PAUSE :]
    moved = np.empty_like(costs)
    moved[State.WORD, -1] = np.inf
    best = moved[State.WORD, :-1]
    np.add(words[:-1], STAY_COST, out=best)
    backpointers = np.zeros(words.shape, np.uint8)
    steps = backpointers[:-1]
    for step, arriving in ((1, words[:-2]), (2, words[:-3] + SKIP_COST)):
        np.putmask(steps[step:], arriving < best[step:], step)
        np.minimum(best[step:], arriving, out=best[step:])
    for step, leaving in enumerate(before_words[:, :-1], start=_LEFT_GAP):
        np.putmask(steps, leaving < best, step)
        np.minimum(best, leaving, out=best)
    best += row
    in_gaps = moved[State.PAUSE :]
    in_gaps[:] = before_words
    entering = words[:-1] + entry_costs[:, 1:]
    backpointers[1:] |= _ENTERED_BITS[State.PAUSE :] @ (entering < in_gaps[:, 1:])
    np.minimum(in_gaps[:, 1:], entering, out=in_gaps[:, 1:])
    in_gaps += gaps[:, None]
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
