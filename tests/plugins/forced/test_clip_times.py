"""The repair of times, compared with that of transformers."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.plugins.forced.clip_times import Tail, make_monotonic, spread_starts

STEP_MS = 80
NO_TAIL = Tail(length=0, room=0)
TIMES_MS = st.one_of(
    st.lists(st.integers(0, highest).map(lambda step: step * STEP_MS), min_size=1, max_size=60)
    for highest in (2, 12, 5000)
)
NEARLY_IN_ORDER = st.lists(st.integers(-3, 6), min_size=1, max_size=60).map(
    lambda moves: [max(0, sum(moves[:place])) * STEP_MS for place in range(len(moves))]
)


@given(TIMES_MS | NEARLY_IN_ORDER)
def test_repair_equals_that_of_transformers(times_ms: list[int]) -> None:
    """Every list is repaired exactly as by `_fix_timestamps`."""
    # Imported here: collection would take seconds longer, in every worker.
    from transformers.models.qwen3_asr.processing_qwen3_asr import _fix_timestamps

    assert make_monotonic(times_ms) == _fix_timestamps(np.array(times_ms, np.float32))


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=40).map(sorted),
    st.integers(1, 60),
    st.integers(0, 500),
)
def test_starts_are_spread(starts: list[int], gap: int, after: int) -> None:
    """After each start there is the gap, or an equal share of the room."""
    end = starts[-1] + after
    gap_here = min(gap, end // len(starts))
    moved = spread_starts(starts, gap, end, NO_TAIL)
    assert len(moved) == len(starts) and moved[0] >= 0
    assert all(after - before >= gap_here for before, after in pairwise([*moved, end]))
    if all(after - before >= gap for before, after in pairwise([*starts, end])):
        assert moved == starts


@pytest.mark.parametrize(
    ("starts", "gap", "end", "expected"),
    [
        ([480, 480, 480], 40, 1000, [440, 480, 520]),
        ([0, 0, 500], 40, 1000, [0, 40, 500]),
        ([990, 990], 40, 1000, [920, 960]),
        ([0, 0, 0], 40, 60, [0, 20, 40]),
        ([0, 0], 40, 0, [0, 0]),
        ([], 40, 100, []),
    ],
    ids=["to both sides", "at the front", "at the end", "no room", "no sound", "no words"],
)
def test_equal_starts_spread(starts: list[int], gap: int, end: int, expected: list[int]) -> None:
    """Equal starts spread to both sides, inside the audio."""
    assert spread_starts(starts, gap, end, NO_TAIL) == expected


@pytest.mark.parametrize("crowd", [2, 5, 6, 200])
def test_starts_at_the_end_move_others_little(crowd: int) -> None:
    """However many starts are at the end, they move only those in its last 200."""
    tail = Tail(length=80, room=200)
    starts = [0, 700, 790, *[1000] * crowd]
    moved = spread_starts(starts, 40, 1000, tail)
    assert moved[:2] == [0, 700]
    assert moved[2] in (760, 790)
    assert all(before <= after for before, after in pairwise([*moved, 1000]))
    assert min(moved[3:]) == 1000 - min(40 * crowd, 200)
