"""Times that contradict each other become times that can be: in order, inside the audio, not empty.

Pure functions of numbers. Knows no words, no model and no units: a time is a whole number of
anything.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

_SNAPPED = 2
"""Longest run of contradictions whose members take the time of a neighbour."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a sound, where starts pile up of words that it does not reach.

    Attributes:
        length: starts so close to the end are at it.
        room: what they may take.
    """

    length: int
    room: int


def in_order(times: Sequence[int]) -> list[int]:
    """The times with the fewest changes that make them non-decreasing.

    A longest non-decreasing subsequence stays. Of the runs between its members, short ones take
    the nearer member's time, and long ones are spread evenly, rounded down.

    Source: `fix_timestamp` of qwen-asr 0.0.6 and `_fix_timestamps` of transformers 5, whose
    results these are, in O(n log n).
    """
    kept = _longest_ordered(times)
    if not kept:
        return []
    repaired = [times[kept[0]]] * kept[0] + list(times[kept[0] :])
    for left, right in pairwise(kept):
        repaired[left + 1 : right] = _between(times[left], times[right], right - left - 1)
    repaired[kept[-1] + 1 :] = [times[kept[-1]]] * (len(times) - kept[-1] - 1)
    return repaired


def _longest_ordered(times: Sequence[int]) -> list[int]:
    """Indices of a longest non-decreasing subsequence; of several, the one that is first.

    Level n holds the indices at which a longest such subsequence has n + 1 members. Times on one
    level strictly decrease, or the later of two would follow the earlier.
    """
    levels: list[list[int]] = []
    lowest: list[int] = []  # the last time of each level
    for index, time in enumerate(times):
        level = bisect_right(lowest, time)
        if level == len(levels):
            levels.append([])
            lowest.append(time)
        levels[level].append(index)
        lowest[level] = time
    return list(_chain(times, levels))[::-1]


def _chain(times: Sequence[int], levels: list[list[int]]) -> Iterator[int]:
    """From the first member of the highest level down, each time the first that can precede."""
    last: int | None = None
    for level in reversed(levels):
        limit = times[level[0] if last is None else last]
        last = level[bisect_left(level, -limit, key=lambda index: -times[index])]
        yield last


def _between(left: int, right: int, count: int) -> list[int]:
    """Times of a run of `count` contradictions between two members that stay."""
    if count <= _SNAPPED:
        return [left if place <= count - place + 1 else right for place in range(1, count + 1)]
    step = (right - left) / (count + 1)
    return [int(left + step * place) for place in range(1, count + 1)]


def apart(starts: Sequence[int], gap: int, end: int, tail: Tail) -> list[int]:
    """Starts that are at least `gap` from each other and from the end, moved as little as can be.

    The sum of the squares of the moves is the least possible: a crowd of equal starts spreads to
    both sides, so that nothing is late or early on the whole. Where there is no room for `gap`
    there is an equal share of the room for each. More starts at the end than `tail` has room for
    are of what has not been heard: they share that room and push nothing else out of its place.

    Args:
        starts: non-decreasing, in [0, end].
        gap: what each needs before the next, or before the end.
        end: behind the last.
        tail: what counts as the end.

    Returns:
        As many, non-decreasing, in [0, end].

    Source: isotonic regression of `starts[i] - i * gap` by pooling adjacent violators, bounded by
    clipping (Barlow et al., Statistical Inference under Order Restrictions, 1972).
    """
    unheard = len(starts) - bisect_right(starts, end - tail.length)
    if unheard * gap <= tail.room:
        return _spread(starts, gap, end)
    room = min(tail.room, end)
    shares = [end - room + room * place // unheard for place in range(unheard)]
    return _spread(starts[: len(starts) - unheard], gap, end - room) + shares


def _spread(starts: Sequence[int], gap: int, end: int) -> list[int]:
    gap = min(gap, end // len(starts)) if starts else gap
    pools: list[tuple[int, int]] = []  # sum and count of what shares one value
    for index, start in enumerate(starts):
        total, count = start - index * gap, 1
        while pools and pools[-1][0] * count >= total * pools[-1][1]:
            previous_total, previous_count = pools.pop()
            total, count = total + previous_total, count + previous_count
        pools.append((total, count))
    room = end - len(starts) * gap
    levels = [min(max(total // count, 0), room) for total, count in pools for _ in range(count)]
    return [level + index * gap for index, level in enumerate(levels)]
