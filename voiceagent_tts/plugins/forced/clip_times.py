"""Repairs the times of one clip that contradict each other.

Repaired times are in order, inside the audio, and leave no word empty. They are integers of any
unit.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

_MAX_SNAPPED_RUN = 2
"""Longest run of contradicting times that take the time of a neighbour."""


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
