"""The benchmark of the cache: its calls, and figures of real servers."""

import pytest

from benchmarks.service.cache_hits import count_hits, read_calls, time_hits


def test_the_trace_is_what_the_page_says() -> None:
    """Twenty calls, of which each begins with the greeting of the script."""
    calls = read_calls()
    assert (len(calls), sum(map(len, calls))) == (20, 154)
    assert len({call[0] for call in calls}) == 1


@pytest.mark.thorough
async def test_the_script_is_warmed_and_timed() -> None:
    """More segments are hits if the script was in the cache before the first call."""
    default, warmed = [await count_hits(2, is_warmed=warm) for warm in (False, True)]
    assert default["segments"] == warmed["segments"]
    assert 0 < default["hit_rate"] < warmed["hit_rate"] < 1
    times = await time_hits(2)
    assert set(times) == {
        f"{source}_{place}"
        for source in ("cache", "engine")
        for place in ("in_server", "at_client")
    }
