"""The benchmark of keys, limits and records: two real servers, and figures of both."""

import pytest

from benchmarks.service.access_cost import mark_times_s, measure, summarize


@pytest.mark.thorough
async def test_both_servers_are_measured_alike() -> None:
    """Every figure exists for both servers, and the difference is what was added."""
    figures = summarize(await measure(turns=2, keys=3, redis=None))
    assert set(figures) == {"admit", "token", "first_audio", "frame"}
    for rows in figures.values():
        for name, added in rows["added"].items():
            assert added == pytest.approx(rows["guarded"][name] - rows["plain"][name], abs=0.002)
    assert figures["admit"]["guarded"]["p50_ms"] > figures["admit"]["plain"]["p50_ms"]
    assert figures["first_audio"]["plain"]["p50_ms"] > 0


def test_every_frame_is_marked() -> None:
    """Each has a time."""
    times_s = mark_times_s(10)
    assert len(times_s) == 10 and min(times_s) > 0
