"""Predictions of a GPU that is not here: they are reproducible, and no change makes them worse."""

import json
from unittest.mock import patch

import pytest
import typer

from benchmarks.engine.pass_work import TABLE
from benchmarks.engine.predict import SAVED, _times_at, predict
from testbed.gpu_simulation import SCENARIOS, GpuTimes, Prediction, load_times
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


@pytest.mark.parametrize("load", SCENARIOS)
def test_no_load_gets_worse(found: dict[str, dict[str, float]], load: str) -> None:
    """First audio is at most 10 % later than saved, throughput at most 10 % less, and no gap."""
    saved, now = json.loads(SAVED.read_text())[load], found[load]
    hint = "run `python -m benchmarks.engine.predict --save` if this is wanted"
    for name in ("audible_p50_s", "audible_p95_s", "step_p99_s"):
        assert now[name] <= WORSE * saved[name], f"{name}: {hint}"
    assert now["audio_s_per_s"] >= saved["audio_s_per_s"] / WORSE, hint
    assert now["gaps"] == 0
    assert now["stalled_s"] == 0


def predicted_without_limit(load: str) -> Prediction:
    """Predict with a codec that is given everything at once."""
    with patch.object(scheduler, "_codec_room", lambda contexts, rows: 10**9):
        return SCENARIOS[load](TIMES).predict()


@pytest.mark.thorough
def test_a_limited_backlog_shortens_the_wait_of_many(found: dict[str, dict[str, float]]) -> None:
    """Without the limit, 256 callers stall the engine's thread, and wait longer for first audio."""
    without, limited = predicted_without_limit("256 callers"), found["256 callers"]
    assert without.stalled_s > 0.5
    assert limited["step_p99_s"] < 0.8 * without.step_p99_s
    assert limited["audible_p50_s"] < 0.6 * without.audible_p50_s


def test_a_commit_without_a_table_is_refused() -> None:
    """The comparison with an earlier commit says what it needs."""
    with pytest.raises(typer.BadParameter, match="expected a commit with benchmarks/engine"):
        _times_at("no-such-commit", "plain")


def test_a_slower_device_is_predicted_to_be_slower() -> None:
    """Launches that take twice as long delay first audio by more than half of that."""
    slow = GpuTimes(TIMES.table, TIMES.figures | {"launch_us": 2 * TIMES.figures["launch_us"]})
    load = "1 request/s"
    fast_s = SCENARIOS[load](TIMES).predict().audible_p50_s
    assert SCENARIOS[load](slow).predict().audible_p50_s > 1.5 * fast_s
