"""Predictions of a GPU that is not here: they are reproducible, and no change makes them worse."""

import json
from dataclasses import asdict
from unittest.mock import patch

import pytest
import typer

from benchmarks.engine.pass_work import TABLE
from benchmarks.engine.predict import SAVED, _times_at, predict
from testbed.gpu_simulation import (
    SCENARIOS,
    GpuSimulation,
    GpuTimes,
    load_times,
    predict_load,
    together,
)
from voiceagent_tts.engine import scheduler

TIMES = load_times(TABLE)
WORSE = 1.10


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, float]]:
    """Predictions of this version."""
    return predict(TIMES)


def test_figures_say_that_they_are_guesses() -> None:
    """Until a card has been measured, the file of figures says so, and why."""
    assert TIMES.figures["is_measured"] is False
    assert "guess" in TIMES.figures["source"].lower()


def worse(now: dict[str, float], saved: dict[str, float]) -> list[str]:
    """Return the measures that are more than 10 % worse than saved."""
    late = ("audible_p50_s", "audible_p95_s", "step_p99_s")
    found = [name for name in late if now[name] > WORSE * saved[name]]
    if now["audio_s_per_s"] < saved["audio_s_per_s"] / WORSE:
        found.append("audio_s_per_s")
    return found


@pytest.mark.parametrize("load", SCENARIOS)
def test_no_load_gets_worse(found: dict[str, dict[str, float]], load: str) -> None:
    """First audio is at most 10 % later than saved, throughput at most 10 % less, and no gap."""
    now = found[load]
    hint = "run `python -m benchmarks.engine.predict --save` if this is wanted"
    assert not worse(now, json.loads(SAVED.read_text())[load]), hint
    assert now["gaps"] == 0
    assert now["stalled_s"] == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("figure", "factor", "load"),
    [
        ("launch_us", 1.15, "1 request/s"),
        ("launch_us", 1.25, "20 requests/s"),
        ("launch_us", 1.15, "256 callers"),
        ("host_ms", 2.5, "60 requests/s"),
        ("terabytes_per_s", 0.75, "64 callers"),
    ],
)
def test_a_slower_device_is_worse(figure: str, factor: float, load: str) -> None:
    """Launches that take 15 to 25 % longer, a slower host or slower memory break the bounds."""
    value = TIMES.figures[figure]
    slower = [factor * one for one in value] if isinstance(value, list) else factor * value
    times = GpuTimes(TIMES.table, TIMES.figures | {figure: slower})
    assert worse(asdict(predict_load(load, times)), json.loads(SAVED.read_text())[load])


@pytest.mark.thorough
@pytest.mark.parametrize("factor", [0.996, 0.998, 1.002, 1.004])
@pytest.mark.parametrize("load", SCENARIOS)
def test_another_schedule_is_not_worse(load: str, factor: float) -> None:
    """A device that differs by 0.4 %, which moves starts to other steps, breaks no bound of audio.

    The longest step in a hundred has one start more or less, which is up to a quarter of it.
    """
    figures = {name: factor * TIMES.figures[name] for name in ("launch_us", "terabytes_per_s")}
    times = GpuTimes(TIMES.table, TIMES.figures | figures)
    found = worse(asdict(predict_load(load, times)), json.loads(SAVED.read_text())[load])
    assert set(found) <= {"step_p99_s"}


@pytest.mark.thorough
def test_a_limited_backlog_shortens_the_wait_of_many() -> None:
    """Without the limit, 256 callers of a plain codec stall the engine, and wait for longer."""
    plain = load_times(TABLE, "plain")
    limited = GpuSimulation(together(256), plain, 288, until_s=4.0).predict()
    with patch.object(scheduler, "_codec_room", lambda contexts, rows: 10**9):
        without = GpuSimulation(together(256), plain, 288, until_s=4.0).predict()
    assert without.stalled_s > 0.5
    assert limited.step_p99_s < 0.8 * without.step_p99_s
    assert limited.audible_p50_s < 0.6 * without.audible_p50_s


def test_a_commit_without_a_table_is_refused() -> None:
    """The comparison with an earlier commit says what it needs."""
    with pytest.raises(typer.BadParameter, match="expected a commit with benchmarks/engine"):
        _times_at("no-such-commit", "plain")


def test_a_slower_device_is_predicted_to_be_slower() -> None:
    """Launches that take twice as long delay first audio by more than half of that."""
    slow = GpuTimes(TIMES.table, TIMES.figures | {"launch_us": 2 * TIMES.figures["launch_us"]})
    load = "1 request/s"
    fast_s = predict_load(load, TIMES).audible_p50_s
    assert predict_load(load, slow).audible_p50_s > 1.5 * fast_s
