import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from voiceagent_tts.bench.cost import (
    HOURS_PER_MONTH,
    Traffic,
    capacity_of,
    costs,
    hosted_prices,
    traffic_of,
)
from voiceagent_tts.errors import InvalidRequestError

MEAN = Traffic(HOURS_PER_MONTH * 3600 * 100, peak_factor=1.0)
"""100 characters a second, day and night."""


def test_the_arithmetic_of_one_machine() -> None:
    """Half used at US$ 3.60 an hour: 10 US$ per million; 20 hosted is twice that."""
    result = costs(MEAN, 200.0, 3.6, {"cloud": 20.0, "cheap": 5.0})
    assert (result.machines, result.utilization) == (1, 0.5)
    assert result.own_usd == pytest.approx(3.6 * HOURS_PER_MONTH)
    assert result.usd_per_million_chars == pytest.approx(10.0)
    cloud, cheap = result.comparisons
    assert cloud.hosted_usd == pytest.approx(2 * cloud.own_usd)
    assert cloud.break_even_chars == pytest.approx(MEAN.chars_per_month / 2)
    assert cheap.break_even_chars == pytest.approx(MEAN.chars_per_month * 2)
    assert cloud.is_reachable and cheap.is_reachable  # just: the machine speaks 200 a second


def test_machines_are_enough_for_the_busiest_minute() -> None:
    """A peak of five times the mean needs 500 characters a second, and a spare machine is rent."""
    peaky = Traffic(MEAN.chars_per_month, 5.0)
    assert costs(peaky, 200.0, 3.6, {}).machines == 3
    assert costs(peaky, 250.0, 3.6, {}, spare=1).machines == 3
    result = costs(peaky, 250.0, 3.6, {"cloud": 5.0})
    assert not result.comparisons[0].is_reachable  # twice the traffic would need twice the peak


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_inputs_are_positive_numbers(wrong: float) -> None:
    """Each is refused by its name."""
    for arguments in (
        (Traffic(wrong, 1.0), 1.0, 1.0, {}), (Traffic(1.0, wrong), 1.0, 1.0, {}),
        (MEAN, wrong, 1.0, {}), (MEAN, 1.0, wrong, {}), (MEAN, 1.0, 1.0, {"cloud": wrong}),
    ):  # fmt: skip
        with pytest.raises(InvalidRequestError, match="expected a positive number"):
            costs(*arguments)


def test_traffic_is_read_from_a_request_log(tmp_path: Path) -> None:
    """120 minutes of 60 characters, and one of 660 more: the peak is 720 of a mean of 65.5."""
    began = datetime(2026, 11, 1, tzinfo=UTC)
    lines = [
        {"time": (began + timedelta(minutes=minute)).isoformat(), "chars": 60}
        for minute in range(120)
    ]
    log = tmp_path / "requests.jsonl"
    log.write_text("\n".join(json.dumps(line) for line in [*lines, {**lines[7], "chars": 660}]))
    traffic = traffic_of(log)
    assert traffic.peak_factor == pytest.approx(720 / 65.5)
    assert traffic.chars_per_month == pytest.approx(65.5 * 60 * HOURS_PER_MONTH)
    for content, reason in (("{}", "line 1"), ("", "hour"), (json.dumps(lines[0]), "hour")):
        log.write_text(content)
        with pytest.raises(InvalidRequestError, match=reason):
            traffic_of(log)


def section(load: str, chars_per_s: float, **figures: Any) -> dict[str, Any]:
    """A section of a report."""
    p95_ms = figures.pop("p95_ms", 100.0)
    ranks = {f"p{rank}": p95_ms for rank in (50, 90, 95, 99)}
    return {
        "target": "t", "load": load, "chars_per_s": chars_per_s, "failed": 0, "silent": 0,
        "with_underruns": 0, "measures": {"audible_ms": ranks}, "values": {}, **figures,
    }  # fmt: skip


def test_capacity_is_that_of_the_heaviest_section_that_served_everyone() -> None:
    """Failures, silence, underruns and late answers are beyond it."""
    sections = [
        section("1", 50.0), section("2", 90.0), section("3", 120.0, failed=1),
        section("4", 130.0, with_underruns=1), section("5", 140.0, p95_ms=400.0),
        section("6", 150.0, silent=2),
    ]  # fmt: skip
    assert capacity_of({"sections": sections}, 300.0) == (90.0, "t, 2")
    with pytest.raises(InvalidRequestError, match="--limit-ms"):
        capacity_of({"sections": sections}, 50.0)


def test_prices_have_names() -> None:
    """`NAME=USD`; a name may have an equals sign, a price must be a number."""
    assert hosted_prices(["a=1", "b=c=2.5"]) == {"a": 1.0, "b=c": 2.5}
    for wrong in ("15", "=15", "a=x", ""):
        with pytest.raises(InvalidRequestError, match="NAME=USD"):
            hosted_prices([wrong])
