"""Nari Labs' `tts_bench` beside ours: its records are read from the planned start."""

from typing import Any

import pytest

from benchmarks.service.tts_bench import rows_of, theirs_ms
from voiceagent_tts.errors import EngineError


def record(planned_ms: float, playable_ms: float, **fields: Any) -> dict[str, Any]:
    """A request as `requests.jsonl` has it: audible 30 ms after it is playable, then complete."""
    ns = 1_000_000
    return {
        "phase": "measurement",
        "success": True,
        "error_message": None,
        "scheduled_elapsed_ns": int(planned_ms * ns),
        "dispatch_elapsed_ns": int((planned_ms + 2) * ns),
        "completed_elapsed_ns": int((playable_ms + 100) * ns),
        "playback": {
            "first_playable_elapsed_ns": int(playable_ms * ns),
            "first_audible_elapsed_ns": int((playable_ms + 30) * ns),
        },
        **fields,
    }


def test_latencies_count_from_the_planned_start() -> None:
    """Time before the request is sent is in them; the warm-up is not."""
    records = [record(0, 5, phase="warmup"), record(1_000, 1_050), record(2_000, 2_070)]
    assert theirs_ms(records) == {
        "first_byte_ms": pytest.approx([50, 70]),
        "audible_ms": pytest.approx([80, 100]),
        "e2e_ms": pytest.approx([150, 170]),
    }


def test_a_failed_request_ends_the_comparison() -> None:
    """Its latency would be that of an error."""
    with pytest.raises(EngineError, match="no such voice"):
        theirs_ms([record(0, 1, success=False, error_message="no such voice")])


def test_rows_state_both_medians_and_their_ratio() -> None:
    """Equal figures have a ratio of one, within its interval."""
    theirs = theirs_ms([record(0, 50 + index) for index in range(50)])
    for row in rows_of("mstar", theirs, theirs):
        assert row["tts_bench_p50_ms"] == row["ours_p50_ms"]
        assert row["ratio"] == 1
        assert row["ratio_interval"][0] <= 1 <= row["ratio_interval"][1]
        assert row["n"] == [50, 50]
