"""Sizes of graphs: the sizes that a load requests, and the lists that fit them."""

from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.engine.buckets import Load, best_sizes, compare, measured_steps, recording, waste

MODEL = Path(__file__).parents[1] / "reference" / "custom_voice-1b7"
COUNTS = st.dictionaries(st.integers(1, 12), st.integers(1, 50), min_size=1)


@given(COUNTS, st.integers(1, 4))
def test_no_list_of_that_length_wastes_less(counts: dict[int, int], graphs: int) -> None:
    """No other list of equal length wastes less, and every requested size fits."""
    best = best_sizes(counts, 12, graphs)
    assert len(best) <= graphs
    assert best[-1] == 12
    lists = [
        (*inner, 12) for length in range(graphs) for inner in combinations(range(1, 12), length)
    ]
    assert waste(counts, best) == pytest.approx(min(waste(counts, sizes) for sizes in lists))


def test_waste_is_the_share_of_padding() -> None:
    """Three calls of size three and one of four, padded to four, waste three places of sixteen."""
    assert waste({3: 3, 4: 1}, (2, 4)) == pytest.approx(3 / 16)
    assert waste({}, (2, 4)) == 0


def test_a_load_s_sizes_are_recorded() -> None:
    """Steps of one row and of several, prompts and codec windows are all counted."""
    load = Load(MODEL, rows=4, frames=8, step_s=lambda rows: 0.02)
    with recording() as noted:
        load.run(rate=20, seconds=0.6, seed=1)
    assert len(noted.rows) > 1
    assert max(noted.rows) <= 4
    assert sum(noted.prompts.values()) > 2
    frames = sum(
        windows * size * often
        for size, counts in noted.codec.items()
        for windows, often in counts.items()
    )
    made = sum(rows * often for rows, often in noted.rows.items())
    assert 0.5 * made < frames <= made
    figures = compare(noted, rows=4)
    assert figures["rows of a step"]["captured"] == [1, 2, 4]
    for found in figures.values():
        assert found["best_waste"] <= found["captured_waste"]


def test_nothing_is_recorded_afterwards() -> None:
    """Recording ends with its block."""
    with recording() as noted:
        pass
    Load(MODEL, rows=1, frames=2, step_s=lambda rows: 0.1).run(rate=20, seconds=0.3, seed=1)
    assert noted.rows == Counter()


def test_steps_between_measured_ones_lie_on_a_line() -> None:
    """Between measured rows times are interpolated; beyond the last they stay constant."""
    step_s = measured_steps([{"rows": 1, "ms_per_frame": 4.0}, {"rows": 3, "ms_per_frame": 8.0}])
    assert [step_s(rows) for rows in (1, 2, 3, 9)] == pytest.approx([0.004, 0.006, 0.008, 0.008])
