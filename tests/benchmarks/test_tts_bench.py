"""Nari Labs' `tts_bench` beside ours: its records are read from the planned start."""

from typing import Any

import numpy as np
import pytest

from benchmarks.service.tts_bench import FIELDS, MEASURES, order_of, rows_of, theirs_ms
from voiceagent_tts.errors import EngineError


def record(planned_ms: float, playable_ms: float, **fields: Any) -> dict[str, Any]:
    """A request as `requests.jsonl` has it: audible 30 ms after it is playable, then complete."""
    ns = 1_000_000
    return {
        "phase": "measurement",
        "transport_status": "complete",
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
        theirs_ms([record(0, 1, transport_status="failed", error_message="no such voice")])


def test_rows_state_both_medians_and_their_ratio() -> None:
    """Equal figures have a ratio of one, within its interval; all rounds count."""
    rounds = [theirs_ms([record(0, low + index) for index in range(50)]) for low in (50, 500)]
    for row in rows_of("mstar", [(values, values) for values in rounds]):
        assert row["tts_bench_p50_ms"] == row["ours_p50_ms"] > 290
        assert row["ratio"] == 1 and row["agrees"]
        assert row["ratio_interval"][0] <= 1 <= row["ratio_interval"][1]
        assert row["n"] == [100, 100]


def test_what_slows_a_round_slows_both() -> None:
    """Rounds of unequal speed widen the interval of two programs that do not share them alone."""
    rng = np.random.default_rng(1)
    speeds = (200, 220, 500, 210)

    def values(speed: float) -> dict[str, list[float]]:
        return {name: rng.normal(speed, speed / 20, 40).tolist() for name in MEASURES}

    shared = rows_of("mstar", [(values(speed), values(speed)) for speed in speeds])[1]
    apart = rows_of(
        "mstar", [(values(a), values(b)) for a, b in zip(speeds, speeds[::-1], strict=True)]
    )[1]
    widths = [high - low for low, high in (shared["ratio_interval"], apart["ratio_interval"])]
    assert widths[0] < 0.15 < widths[1]
    assert shared["agrees"]
    slower = rows_of("mstar", [(values(200), values(230)) for _ in speeds])[1]
    assert not slower["agrees"] and slower["ratio_interval"][0] > 1.05


def test_every_target_is_first_in_some_round() -> None:
    """One target warms the server up; then the order changes from round to round."""
    assert order_of(0) == ["vllm-omni"]
    rounds = [order_of(number) for number in range(1, 6)]
    assert {each[0] for each in rounds[:4]} == set(FIELDS) and rounds[4] == rounds[0]
    assert all(sorted(each) == sorted(FIELDS) for each in rounds)
