"""Repair of times: the same as transformers', and what no model can break."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.qwen3_asr.processing_qwen3_asr import _fix_timestamps

from voiceagent_tts.aligner.forced.clip_times import (
    WINDOW_SAMPLES,
    Tail,
    Window,
    WindowedClip,
    make_monotonic,
    spread_starts,
)
from voiceagent_tts.core import SAMPLE_RATE_HZ, Word

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
def test_order_is_that_of_transformers(times_ms: list[int]) -> None:
    """Every list is repaired as `_fix_timestamps` repairs it, number for number."""
    assert make_monotonic(times_ms) == _fix_timestamps(np.array(times_ms, np.float32))


@given(TIMES_MS | NEARLY_IN_ORDER)
def test_order_is_kept_where_it_is(times_ms: list[int]) -> None:
    """What comes out never decreases, and what does not decrease comes out as it went in."""
    repaired = make_monotonic(times_ms)
    assert all(before <= after for before, after in pairwise(repaired))
    assert make_monotonic(repaired) == repaired
    assert make_monotonic([]) == []


def test_order_of_a_long_list_is_quick() -> None:
    """Ten minutes of words, all out of order, are repaired by comparisons in the thousands."""
    comparisons = 0

    class Counted(int):
        def __lt__(self, other: int) -> bool:
            nonlocal comparisons
            comparisons += 1
            return int(self) < int(other)

    make_monotonic([Counted(value) for value in np.random.default_rng(0).permutation(4000)])
    assert 4000 < comparisons < 4000 * 16


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=40).map(sorted),
    st.integers(1, 60),
    st.integers(0, 500),
)
def test_starts_come_spread_starts(starts: list[int], gap: int, after: int) -> None:
    """Between starts, and before the end, there is the gap, or an equal share of the room."""
    end = starts[-1] + after
    gap_here = min(gap, end // len(starts))
    moved = spread_starts(starts, gap, end, NO_TAIL)
    assert len(moved) == len(starts) and moved[0] >= 0
    assert all(after - before >= gap_here for before, after in pairwise([*moved, end]))
    if all(after - before >= gap for before, after in pairwise([*starts, end])):
        assert moved == starts


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=12).map(sorted),
    st.lists(st.integers(-60, 20), min_size=12, max_size=12),
)
def test_starts_are_moved_as_little_as_can_be(starts: list[int], shifts: list[int]) -> None:
    """No other starts that are apart have a smaller sum of squared moves."""
    gap, end = 40, 2000

    def moves(places: list[int]) -> int:
        return sum((place - start) ** 2 for place, start in zip(places, starts, strict=True))

    others: list[int] = []
    for start, shift in zip(starts, shifts, strict=False):
        others.append(max(start + shift, others[-1] + gap if others else 0))
    rounding = 2 * len(starts) * gap * len(starts)  # whole samples, at the largest move
    assert moves(spread_starts(starts, gap, end, NO_TAIL)) <= moves(others) + rounding


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
def test_a_crowd_spreads(starts: list[int], gap: int, end: int, expected: list[int]) -> None:
    """Words of one time share it with their neighbours, inside the sound."""
    assert spread_starts(starts, gap, end, NO_TAIL) == expected


@pytest.mark.parametrize("crowd", [2, 5, 6, 200])
def test_a_crowd_at_the_end_pushes_nobody_far(crowd: int) -> None:
    """However many starts pile up at the end, others keep their places but in its last 200."""
    tail = Tail(length=80, room=200)
    starts = [0, 700, 790, *[1000] * crowd]
    moved = spread_starts(starts, 40, 1000, tail)
    assert moved[:2] == [0, 700]
    assert moved[2] in (760, 790)
    assert all(before <= after for before, after in pairwise([*moved, 1000]))
    assert min(moved[3:]) == 1000 - min(40 * crowd, 200)


Spans = list[tuple[int, int]]


def hear(window: Window, spans: Spans) -> list[int]:
    """What a model says that hears all words of a window but the one that its end cuts off.

    Words that are not in the window are all at its end.
    """
    length = window.end_sample - window.start_sample
    times: list[int] = []
    for unit in window.units:
        start, end = (place - window.start_sample for place in spans[unit[0].char_start])
        is_whole = end <= length
        times += (max(start, 0), end) if is_whole else (min(start, length), length)
    return times


def align(spans: Spans, samples: int) -> tuple[list[int], list[Window]]:
    """The times that come together, and the windows that were asked for."""
    clip = WindowedClip([(Word("word", place, place),) for place in range(len(spans))], samples)
    windows: list[Window] = []
    while window := clip.next_window():
        windows.append(window)
        clip.add_times(window, hear(window, spans))
    return clip.times, windows


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 2.0, 40.0]), st.sampled_from([0.05, 0.4, 3.0])),
        min_size=1,
        max_size=500,
    ),
    st.sampled_from([0.0, 5.0, 700.0]),
)
def test_times_are_those_of_one_hearing(pauses: list[tuple[float, float]], after: float) -> None:
    """Pauses, crowds of words and silence at the end: all times come, each from a whole word."""
    spans: Spans = []
    now = 0
    for pause, length in pauses:
        start = now + round(pause * SAMPLE_RATE_HZ)
        now = start + round(length * SAMPLE_RATE_HZ)
        spans.append((start, now))
    samples = now + round(after * SAMPLE_RATE_HZ)
    times, windows = align(spans, samples)
    assert times == [time for span in spans for time in span]
    assert all(window.end_sample - window.start_sample <= WINDOW_SAMPLES for window in windows)
    assert all(before.start_sample <= after.start_sample for before, after in pairwise(windows))
    assert all(window.end_sample <= samples for window in windows)


def test_an_even_clip_takes_few_windows() -> None:
    """An hour of even speech is heard little more than once."""
    second = SAMPLE_RATE_HZ
    spans = [(place * second // 2, place * second // 2 + second // 3) for place in range(7200)]
    _, windows = align(spans, 3600 * second)
    assert len(windows) == 13
    assert sum(len(window.units) for window in windows) < 1.3 * len(spans)


def test_five_minutes_are_one_window() -> None:
    """What the model was trained on is asked for at once."""
    spans = [(0, 100), (200, 300)]
    assert len(align(spans, WINDOW_SAMPLES)[1]) == 1
    assert align(spans, 0) == ([0] * 4, [])
