"""Word times of one clip: its windows, and the repair of times that contradict each other.

A long clip is aligned window by window. A window begins where the certain words of the one before
ended; its own end may cut a word off, so the next window repeats its last seconds and only the
times before them are kept. Repaired times are in order, inside the audio, and leave no word empty.
This module knows no network: times are integers of any unit.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from voiceagent_tts.aligner.forced.prompt import Unit
from voiceagent_tts.core import SAMPLE_RATE_HZ

WINDOW_SAMPLES = 300 * SAMPLE_RATE_HZ
"""Longest audio that the model was trained on (arXiv 2601.21337, section 3)."""
_UNCERTAIN_SAMPLES = 10 * SAMPLE_RATE_HZ
"""End of a window whose words are aligned again in the next window."""
_UNITS_ABOVE_AVERAGE = 1.25
"""How many times more units a window may contain than the average of the remaining clip."""
_MAX_SNAPPED_RUN = 2
"""Longest run of contradicting times that take the time of a neighbour."""


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a clip, and the units that may be spoken in it; the last ones may come later."""

    start_sample: int
    end_sample: int
    units: Sequence[Unit]


class WindowedClip:
    """Collects the times of one clip's units, window by window.

    Args:
        units: of the clip, in order.
        samples: length of the clip at 24 kHz.
        window_samples: longest window, at least 30 s.
    """

    def __init__(
        self, units: Sequence[Unit], samples: int, window_samples: int = WINDOW_SAMPLES
    ) -> None:
        self.units = units
        self.samples = samples
        self._window_samples = window_samples
        self.times: list[int] = []
        """Start and end of each unit in samples of the clip, as far as they are known."""
        self._start = 0
        if not samples:
            self.times += [0] * 2 * len(units)

    def next_window(self) -> Window | None:
        """The window to align next; None when every unit has its times."""
        units = self.units[len(self.times) // 2 :]
        if not units:
            return None
        left = self.samples - self._start
        if left <= self._window_samples:
            return Window(self._start, self.samples, units)
        length = self._window_samples
        count = int(len(units) * length / left * _UNITS_ABOVE_AVERAGE) + 1
        return Window(self._start, self._start + length, units[:count])

    def add_times(self, window: Window, times: Sequence[int]) -> None:
        """Keep the certain times of a window.

        Args:
            window: the last result of `next_window`.
            times: start and end of each of its units in samples of the window, non-decreasing.
        """
        in_clip = [window.start_sample + time for time in times]
        if window.end_sample == self.samples:
            self.times += in_clip
            return
        certain_until = window.end_sample - _UNCERTAIN_SAMPLES
        kept = sum(end <= certain_until for end in in_clip[1::2])
        self.times += in_clip[: 2 * kept]
        if kept == len(window.units):  # units that the window did not contain may follow here
            self._start = in_clip[-1]
        else:
            earliest = window.start_sample + self._window_samples - 2 * _UNCERTAIN_SAMPLES
            self._start = min(max(in_clip[2 * kept], earliest), certain_until)


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the audio, where the model puts the starts of words that are not in it.

    Attributes:
        length: a start this close to the end counts as being at the end.
        room: length of the audio's end that these words may share.
    """

    length: int
    room: int


def make_monotonic(times: Sequence[int]) -> list[int]:
    """Change the fewest times so that they do not decrease.

    A longest non-decreasing subsequence stays. Of the runs between its members, short ones take
    the nearer member's time, and long ones are spread evenly, rounded down.

    Source: `fix_timestamp` of qwen-asr 0.0.6 and `_fix_timestamps` of transformers 5; this has
    their results in O(n log n).
    """
    kept = _longest_non_decreasing(times)
    if not kept:
        return []
    repaired = [times[kept[0]]] * kept[0] + list(times[kept[0] :])
    for left, right in pairwise(kept):
        repaired[left + 1 : right] = _between(times[left], times[right], right - left - 1)
    repaired[kept[-1] + 1 :] = [times[kept[-1]]] * (len(times) - kept[-1] - 1)
    return repaired


def _longest_non_decreasing(times: Sequence[int]) -> list[int]:
    """Indices of a longest non-decreasing subsequence; the first one if there are several.

    Level n holds the indices at which a longest such subsequence has n + 1 members. Times on one
    level strictly decrease, or the later of two would follow the earlier.
    """
    levels: list[list[int]] = []
    lowest: list[int] = []  # last time of each level
    for index, time in enumerate(times):
        level = bisect_right(lowest, time)
        if level == len(levels):
            levels.append([])
            lowest.append(time)
        levels[level].append(index)
        lowest[level] = time
    return list(_chain(times, levels))[::-1]


def _chain(times: Sequence[int], levels: list[list[int]]) -> Iterator[int]:
    """One index per level, from the highest down, each the first that can precede the last."""
    last: int | None = None
    for level in reversed(levels):
        limit = times[level[0] if last is None else last]
        last = level[bisect_left(level, -limit, key=lambda index: -times[index])]
        yield last


def _between(left: int, right: int, count: int) -> list[int]:
    """Times of a run of `count` contradicting times between two members that stay."""
    if count <= _MAX_SNAPPED_RUN:
        return [left if place <= count - place + 1 else right for place in range(1, count + 1)]
    step = (right - left) / (count + 1)
    return [int(left + step * place) for place in range(1, count + 1)]


def spread_starts(starts: Sequence[int], gap: int, end: int, tail: Tail) -> list[int]:
    """Move starts as little as possible, so that at least `gap` lies after each of them.

    The sum of the squared moves is minimal: equal starts spread to both sides, so the words are
    neither late nor early on average. If there is too little room for `gap`, each start gets an
    equal share of the room. If more starts are at the end than fit into the tail, they belong to
    words that are not spoken yet: they share the tail and move no other start.

    Args:
        starts: non-decreasing, in [0, end].
        gap: minimal distance from each start to the next, and from the last to `end`.
        end: end of the audio.
        tail: what counts as the end of the audio.

    Returns:
        As many starts, non-decreasing, in [0, end].

    Source: isotonic regression of `starts[i] - i * gap` by pooling adjacent violators, bounded by
    clipping (Barlow et al., Statistical Inference under Order Restrictions, 1972).
    """
    at_end = len(starts) - bisect_right(starts, end - tail.length)
    if at_end * gap <= tail.room:
        return _isotonic(starts, gap, end)
    room = min(tail.room, end)
    shares = [end - room + room * place // at_end for place in range(at_end)]
    return _isotonic(starts[: len(starts) - at_end], gap, end - room) + shares


def _isotonic(starts: Sequence[int], gap: int, end: int) -> list[int]:
    gap = min(gap, end // len(starts)) if starts else gap
    pools: list[tuple[int, int]] = []  # sum and count of the starts that share one value
    for index, start in enumerate(starts):
        total, count = start - index * gap, 1
        while pools and pools[-1][0] * count >= total * pools[-1][1]:
            previous_total, previous_count = pools.pop()
            total, count = total + previous_total, count + previous_count
        pools.append((total, count))
    room = end - len(starts) * gap
    levels = [min(max(total // count, 0), room) for total, count in pools for _ in range(count)]
    return [level + index * gap for index, level in enumerate(levels)]
