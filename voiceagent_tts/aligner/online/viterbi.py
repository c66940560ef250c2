"""Viterbi search for the reference frame that the audio has reached, and the times of its words.

A path stays at a reference frame, moves to the next one, or skips one; staying and skipping cost.
Before a word it may be in a gap: a pause, or speech that the text lacks. Only a window of the
reference around the head is searched, so a step costs the same however long the context is. Where a
word has several readings, a path takes one of them, or none: it was read in yet another way.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from voiceagent_tts.aligner.online import tuning
from voiceagent_tts.aligner.online.confidence import PathEvidence
from voiceagent_tts.aligner.online.espeak_reference import Fork, ReferenceWord
from voiceagent_tts.aligner.online.features import Booleans, Floats, Integers
from voiceagent_tts.core import WordTimestamp

_STEPS = 8
_STEP_BITS = _STEPS - 1
"""Bits of a backpointer that say how the frame of a word was reached: how many reference frames
further, or, from `_LEFT_GAP` on, from which gap."""
_LEFT_GAP = 3
_JUMPED = _LEFT_GAP + 2
"""The first of three steps that leave frames out: from a word, and from either gap."""
_UNIT = 1024 * _STEPS
"""The search computes with integers: this many for a cost of 1.0. A path's last step is in the
lowest bits of its cost, so that the minimum of two costs is the cheaper path with its step."""
_UNREACHABLE = 1 << 24
"""Cost of a path that does not exist, in units, and of one that costs 2,048 more than the cheapest,
which is dropped. A block of frames can add it up 100 times before an int32 overflows."""

Units: TypeAlias = npt.NDArray[np.int32]


class State(IntEnum):
    """How a path explains an audio frame; all states but a word are gaps between words."""

    WORD = 0
    PAUSE = 1
    UNWRITTEN = 2
    """Speech that the text lacks."""


_ENTERED_BITS = (0, 0b01000, 0b10000)
"""For each state, the bit of a backpointer that says that this gap was entered with the frame."""
_PLACES_OF_STEPS = np.array((1, *_ENTERED_BITS[1:]), np.int32)
"""Place of each state's step in a backpointer."""

# The cost of each step, with its number in the lowest bits.
_STAY, _MOVE, _SKIP = int(tuning.STAY_COST * _UNIT), 1, int(tuning.SKIP_COST * _UNIT) + 2
_LEAVE = np.array(((_LEFT_GAP,), (_LEFT_GAP + 1,)), np.int32)
_ENTRIES = (tuning.GAP_ENTRY_COSTS[:, None] * _UNIT + 1).astype(np.int32)


Jump = tuple[int, int, int]
"""A reference frame, one further on at which a path may continue in its place, and the cost."""


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
        self._costs = np.zeros((len(State), 0), np.int32)
        """[State, window + 1], cost of the cheapest path to each frame of the window, and to each
        gap before that frame, in units; the last place is only for gaps after the window."""
        self._backpointers: deque[tuple[int, bytes, dict[int, int]]] = deque(
            maxlen=tuning.MAX_TRACED_FRAMES
        )
        """For each audio frame: start of its window, the steps that led to each frame and to the
        gaps before it, [window + 1], and where jumps to a frame began."""
        self._traced: list[int] = []
        """The last backtrace, without audio frames since then: for each frame its place, times
        `len(State)`, plus its state."""
        self.evidence = np.zeros((0, 2), np.float32)
        """How sure the search was at each audio frame, [N, 2]: the cost of the cheapest path per
        frame, and how much more the cheapest path cost that ended elsewhere. Both are those of the
        frames that came together."""
        self._has_paths = False
        """Whether an audio frame has come since the last restart."""
        self.end = PathEnd(0, State.PAUSE)
        """Where the cheapest path ends."""

    @property
    def head(self) -> int:
        """Reference frame that the cheapest path has reached; the next one before any audio."""
        return max(self.end.frame - self.end.is_gap, self._window_start)

    @property
    def reach(self) -> int:
        """The furthest reference frame of the paths that may prove to be the cheapest."""
        if not self._has_paths:
            return self.head
        likely = np.flatnonzero(self._costs.min(axis=0) <= tuning.REACH_COST * _UNIT)
        last_frame = self._costs.shape[1] - 2  # only gaps lie after it
        return self._window_start + min(int(likely[-1]), last_frame)

    def restart(self, reference_frame: int) -> None:
        """Drop all paths; the next audio frame is at `reference_frame` or one after it."""
        self.end, self._window_start = PathEnd(reference_frame, State.PAUSE), reference_frame
        self._has_paths = False
        self._backpointers.clear()
        self._traced.clear()
        self.evidence = self.evidence[:0]

    def window(self, reference_length: int, forks: Sequence[Fork] = ()) -> range:
        """Reference frames that the next audio frames can reach.

        Frames of `forks`, words with several readings in order, do not count, as a path may leave
        them out.
        """
        start, stop = self.head - tuning.FRAMES_BEHIND_HEAD, self.head + tuning.FRAMES_AHEAD_OF_HEAD
        for fork in forks:
            if fork.span.start < stop and fork.span.stop > self.head:
                stop += len(fork.span)
        for fork in reversed(forks):
            if fork.span.stop > start and fork.span.start < self.head:
                start -= len(fork.span)
        return range(max(self._window_start, start), min(stop, reference_length))

    def advance(
        self,
        window: range,
        emission_costs: Floats,
        gap_costs: Floats,
        starts: Booleans,
        forks: Sequence[Fork] = (),
    ) -> None:
        """Extend the paths by the next audio frames.

        Args:
            window: the last result of `window()`.
            emission_costs: [N, len(window)], cost of each audio frame at the reference frames of
                the window.
            gap_costs: [N, 2], cost of each audio frame in a pause and in unwritten speech.
            starts: [len(window) + 1], whether a gap may lie before each frame of the window, and
                before the one after it.
            forks: words with several readings, in order.
        """
        jumps = [jump for fork in forks for jump in _jumps(fork, window)]
        landed: list[dict[int, int]] = [{} for _ in emission_costs]
        costs = self._moved_costs(window)
        entry_costs = np.where(starts, _ENTRIES, _UNREACHABLE)
        own_costs = np.full((len(emission_costs), *costs.shape), _UNREACHABLE, np.int32)
        own_costs[:, State.WORD, :-1] = _units(emission_costs)
        own_costs[:, State.PAUSE :] = _units(gap_costs)[:, :, None]
        steps = np.zeros(own_costs.shape, np.int32)
        for number in range(len(own_costs)):
            if self._has_paths:
                costs = _step(
                    costs, own_costs[number], entry_costs, steps[number], jumps, landed[number]
                )
            else:
                costs = _initial_costs(own_costs[number])
                self._has_paths = True
        self._remember(window, steps, landed)
        state, place = map(int, np.unravel_index(np.argmin(costs), costs.shape))
        lowest = int(costs[state, place])
        # Costs are kept relative to the lowest, so they do not grow with the context.
        self._costs = np.where(costs < _UNREACHABLE, costs - lowest, _UNREACHABLE)
        self._window_start = window.start
        self.end = PathEnd(self._window_start + place, State(state))
        frames = len(emission_costs)
        evidence = np.empty((frames, 2), np.float32)
        evidence[:] = lowest / _UNIT / frames, self._margin(place)
        self.evidence = np.concatenate((self.evidence, evidence))[-tuning.MAX_TRACED_FRAMES :]

    def backtrace(self, end: "PathEnd") -> tuple[Integers, Booleans]:
        """The cheapest path to `end`.

        Returns:
            [N], reference frame of each audio frame, or the one after the gap that it is in; and
            [N], whether it is in no gap.
        """
        place, state, word = end.frame, int(end.state), int(State.WORD)
        states, traced, kept = len(State), self._traced, 0
        newest: list[int] = []
        places = zip(
            range(len(self._backpointers), 0, -1), reversed(self._backpointers), strict=True
        )
        for count, (start, backpointers, landed) in places:
            position = place * states + state
            if count <= len(traced) and traced[count - 1] == position:
                kept = count  # up to here as in the last backtrace
                break
            newest.append(position)
            step = backpointers[place - start]
            reached = step & _STEP_BITS
            if state != word:
                if step & _ENTERED_BITS[state]:
                    place, state = place - 1, word
            elif reached >= _JUMPED:
                place, state = start + landed[place - start], reached - _JUMPED
                place -= state == word
            elif reached >= _LEFT_GAP:
                state = State.PAUSE + reached - _LEFT_GAP
            else:
                place -= reached
        traced[kept:] = reversed(newest)
        path, path_states = np.divmod(np.array(traced, np.int64), states)
        return path, path_states == word

    def end_near(self, expected: int) -> "PathEnd":
        """Where a path ends that should have reached the reference frame `expected`.

        That is there or in a gap after it if such a path costs little more than the cheapest,
        else the end of the cheapest path up to it, and that of the cheapest of all if every path
        has passed `expected`.
        """
        if not self._has_paths:
            return PathEnd(expected, State.WORD)
        # A gap lies before its frame, so each is next to the word's frame before it.
        by_state = self._costs.copy()
        by_state[State.WORD] = np.insert(by_state[State.WORD], 0, _UNREACHABLE)[:-1]
        costs = by_state.min(axis=0)[: max(0, expected + 2 - self._window_start)]
        if costs.min(initial=_UNREACHABLE) == _UNREACHABLE:
            return self.end
        is_in_window = expected + 1 < self._window_start + len(costs)
        is_near = is_in_window and costs[-1] <= costs.min() + tuning.CLOSING_COST * _UNIT
        place = len(costs) - 1 if is_near else int(np.argmin(costs))
        state = State(int(np.argmin(by_state[:, place])))
        return PathEnd(self._window_start + place - (state is State.WORD), state)

    def drop_oldest(self, count: int) -> None:
        """Drop the first `count` audio frames; a backtrace no longer includes them."""
        for _ in range(count):
            self._backpointers.popleft()
        self.evidence = self.evidence[count:]
        del self._traced[:count]

    def _remember(self, window: range, steps: Units, landed: list[dict[int, int]]) -> None:
        del self._traced[: max(0, len(self._backpointers) + len(steps) - tuning.MAX_TRACED_FRAMES)]
        self._backpointers.extend(
            (window.start, packed.tobytes(), jumped)
            for packed, jumped in zip(
                np.einsum("nsw,s->nw", steps, _PLACES_OF_STEPS).astype(np.uint8),
                landed,
                strict=True,
            )
        )

    def _margin(self, place: int) -> float:
        """How much more the cheapest path cost that did not end near `place`."""
        parts = (
            self._costs[:, : max(0, place - tuning.FAR_FRAMES)],
            self._costs[:, place + tuning.FAR_FRAMES + 1 :],
        )
        return min(int(part.min(initial=tuning.MAX_MARGIN * _UNIT)) for part in parts) / _UNIT

    def _moved_costs(self, window: range) -> Units:
        """[State, len(window) + 1], the costs so far; unreachable outside the last window."""
        costs = np.full((len(State), len(window) + 1), _UNREACHABLE, np.int32)
        if self._has_paths:
            kept = self._costs[:, window.start - self._window_start :][:, : len(window) + 1]
            costs[:, : kept.shape[1]] = kept
        return costs


def _units(costs: Floats) -> Units:
    """`costs` in units, with no step in the lowest bits."""
    whole = np.minimum(costs * np.float32(_UNIT // _STEPS), _UNREACHABLE // _STEPS)
    return whole.astype(np.int32) * _STEPS


def _initial_costs(own: Units) -> Units:
    """Costs [State, window + 1] after the first audio frame, which costs `own` at each of them.

    It is at the first reference frame, or skips it, or lies in a gap before it.
    """
    costs = np.full_like(own, _UNREACHABLE)
    costs[State.WORD, 0] = own[State.WORD, 0]
    costs[State.WORD, 1:-1][:1] = own[State.WORD, 1:-1][:1] + int(tuning.SKIP_COST * _UNIT)
    costs[State.PAUSE :, 0] = own[State.PAUSE :, 0] + _units(tuning.INITIAL_GAP_COSTS)
    return costs


def _jumps(fork: Fork, window: range) -> Iterator[Jump]:
    """Jumps of a word with several readings, counted from the start of the window."""
    first, *others, after = (border - window.start for border in fork.borders)
    jumps = [(first, after, int(tuning.OMISSION_COST * _UNIT))]
    for border in others:
        jumps += ((first, border, 0), (border, after, 0))
    return (jump for jump in jumps if 0 <= jump[0] and jump[1] < len(window))


def _jump(costs: Units, best: Units, jumps: Sequence[Jump], landed: dict[int, int]) -> None:
    """Let paths leave out readings.

    costs: [State, window + 1], before the frame; best: [window], cost of the cheapest path to each
    frame with its step, updated. Jumps count from the start of the window; `landed` receives where
    the jump to a frame began that is part of the cheapest path.
    """
    for source, target, cost in jumps:
        word = int(costs[State.WORD, source - 1]) if source else _UNREACHABLE
        before = (word, int(costs[State.PAUSE, source]), int(costs[State.UNWRITTEN, source]))
        state = min(range(len(State)), key=before.__getitem__)
        total = before[state] + cost + _JUMPED + state
        if total < best[target]:
            best[target] = total
            landed[target] = source


def _step(
    costs: Units,
    own: Units,
    entry_costs: Units,
    steps: Units,
    jumps: Sequence[Jump],
    landed: dict[int, int],
) -> Units:
    """Costs [State, window + 1] after one more audio frame, which costs `own` at each of them.

    entry_costs: [2, window + 1], of both gaps before each reference frame, with their step. `steps`
    receives the last step of each path, `landed` where jumps over readings began.
    """
    words, before_words = costs[State.WORD], costs[State.PAUSE :]
    moved = np.empty_like(costs)
    best, in_gaps = moved[State.WORD, :-1], moved[State.PAUSE :, 1:]
    np.add(words[:-1], _STAY, out=best)
    np.minimum(best[1:], words[:-2] + _MOVE, out=best[1:])
    np.minimum(best[2:], words[:-3] + _SKIP, out=best[2:])
    for leaving in before_words[:, :-1] + _LEAVE:
        np.minimum(best, leaving, out=best)
    if jumps:
        _jump(costs, best, jumps, landed)
    moved[State.WORD, -1] = _UNREACHABLE
    np.add(words[:-1], entry_costs[:, 1:], out=in_gaps)
    np.minimum(in_gaps, before_words[:, 1:], out=in_gaps)
    moved[State.PAUSE :, 0] = before_words[:, 0]
    np.bitwise_and(moved, _STEP_BITS, out=steps)
    moved -= steps
    moved += own
    return moved


@dataclass(frozen=True, slots=True)
class AlignmentPath:
    """The reference frame that the audio was at, for each of its speech frames.

    Attributes:
        reference_frames: [N], non-decreasing.
        centres: [N], sample at the centre of each speech frame.
    """

    reference_frames: Sequence[int]
    centres: Sequence[int]
    evidence: PathEvidence

    def has_reached(self, word: ReferenceWord) -> bool:
        """Whether the audio has reached the word."""
        return len(self.reference_frames) > 0 and word.first_frame <= self.reference_frames[-1]

    def passed_before(self, frames: int, sample: int) -> int:
        """Reference frame before which the audio was `frames` speech frames ago, or at `sample`."""
        recent = self.reference_frames[-frames] if len(self.reference_frames) >= frames else 0
        spoken = bisect_left(self.centres, sample)
        return max(recent, self.reference_frames[spoken - 1] + 1 if spoken else 0)

    def frames_in(self, word: ReferenceWord) -> int:
        """Number of speech frames inside the word."""
        return self._place(word.end_frame) - self._place(word.first_frame)

    def _place(self, frame: int) -> int:
        return bisect_left(self.reference_frames, frame)

    def time_of(self, word: ReferenceWord) -> WordTimestamp:
        """Times of a word that the audio has reached; its end is None while it is not reached."""
        first, end = self._place(word.first_frame), self._place(word.end_frame)
        onset = self._place(word.first_frame + tuning.ONSET_FRAMES)
        confidence = self.evidence.start_confidence(first) if word.is_exact else 0.0
        first = self._after_pause(first, min(onset, end))  # a word may be shorter
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
            if self.centres[index] - self.centres[index - 1] > tuning.PAUSE_SAMPLES:
                return index
        return first
