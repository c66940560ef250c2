"""Predictions of a GPU elsewhere: they fit what runs measured, and no change worsens them."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import typer
from pytest import approx

from benchmarks.engine.calibrate import (
    calibrate,
    codec_step_s,
    errors,
    fit,
    frames_of,
    measured_times,
    sections_of,
)
from benchmarks.engine.pass_work import TABLE
from benchmarks.engine.predict import CARD, SAVED, _at, predict
from testbed.gpu_simulation import (
    FIGURES,
    SCENARIOS,
    GpuSimulation,
    GpuTimes,
    load_times,
    predict_load,
    together,
)
from voiceagent_tts.engine import scheduler
from voiceagent_tts.engine.sizes import graph_sizes

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
CARDS: dict[str, dict[str, Any]] = json.loads(FIGURES.read_text())["cards"]
TIMES = load_times(TABLE, CARD)
WORSE = 1.10
SPEEDS = ("launch_us", "terabytes_per_s")
WRONG = 0.15
"""Largest relative error of the model's times, of passes and of steps."""


def times_with(name: str, factor: float) -> GpuTimes:
    """Return times in which one figure, or each of a group, is multiplied."""

    def scaled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: one if key == "rows" else scaled(one) for key, one in value.items()}
        return [scaled(one) for one in value] if isinstance(value, list) else factor * value

    return replace(TIMES, figures=TIMES.figures | {name: scaled(TIMES.figures[name])})


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, float]]:
    """Predictions of this version."""
    return predict(TIMES)


@pytest.mark.parametrize("card", CARDS)
def test_figures_are_those_of_the_runs(card: str) -> None:
    """The file has what `calibrate` makes of the committed results."""
    saved = CARDS[card]
    folders = [RESULTS / name for name in saved["results"]]
    found = calibrate(folders, saved["commit"], saved["codec"], saved["prompts_a_pass"])
    assert saved["is_measured"]
    assert found.keys() == saved.keys()
    for name in ("launch_us", "codec_us_per_gigaflop", "errors"):
        assert found[name] == approx(saved[name], rel=0.01, abs=0.002)
    assert found["beside_share"] == approx(saved["beside_share"], rel=0.01)


@pytest.mark.parametrize("card", ["H100", "H200"])
def test_measured_times_are_predicted(card: str) -> None:
    """Each pass that a run timed, and each step with the codec beside it, is within 15 %."""
    runs = [sections_of(RESULTS / name) for name in CARDS[card]["results"]]
    measured = measured_times(runs) | frames_of(runs[-1])
    found = errors(measured, load_times(TABLE, card))
    assert len(found) >= 17
    assert {name: error for name, error in found.items() if abs(error) > WRONG} == {}


def test_a_codec_that_was_not_fitted_is_predicted() -> None:
    """The codec beside 2 to 256 rows of the smaller model, of which the fit knows nothing."""
    lines = sections_of(RESULTS / "nvidia-h200")["engine-0.6b"]["figures"]["lines"].values()
    beside = {
        int(line["rows"]): 1000 * codec_step_s(TIMES, line["rows"]) / line["codec_ms"] - 1
        for line in lines
        if line["rows"] > 1
    }
    assert len(beside) == 8
    assert {rows: error for rows, error in beside.items() if abs(error) > WRONG} == {}


def test_the_fit_finds_the_figures_of_a_card_that_the_model_describes() -> None:
    """Times that the model itself makes lead back to its launches and multiplications."""
    runs = [sections_of(RESULTS / name) for name in CARDS[CARD]["results"]]
    measured = {name: (1000 * of(TIMES), of) for name, (_, of) in measured_times(runs).items()}
    found = fit(measured, TIMES).figures
    for name in ("launch_us", "codec_us_per_gigaflop"):
        assert found[name] == approx(TIMES.figures[name], rel=0.01)


def test_prompts_share_a_pass_as_in_the_engine() -> None:
    """As many short prompts as the engine packs are one pass, and one more is another."""
    most = graph_sizes(288, 1024).talker.prompt_rows[-1]
    assert TIMES.prefill_s(most) < 2 * TIMES.prefill_s(1)
    assert TIMES.prefill_s(most + 1) == approx(TIMES.prefill_s(most) + TIMES.prefill_s(1))


def test_multiplications_take_time() -> None:
    """A card that multiplies at a tenth of the rate takes longer for 256 rows, not for one."""
    slow = times_with("teraflop_per_s", 0.1)
    assert slow.talker_s(256) > 2 * TIMES.talker_s(256)
    assert slow.talker_s(1) == TIMES.talker_s(1)


def test_a_server_limits_what_an_engine_makes() -> None:
    """Through a server with 20 ms for a second of audio, 50 of them are heard in a second."""
    served = replace(TIMES, figures=TIMES.figures | {"server_ms_per_audio_s": 20}, has_server=True)
    alone = GpuSimulation(together(16), TIMES, 288).predict()
    found = GpuSimulation(together(16), served, 288).predict()
    assert alone.audio_s_per_s > 100
    assert found.audio_s_per_s == approx(50, rel=0.05)
    assert found.contexts == alone.contexts == 16


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
        ("host", 2.5, "64 callers"),
        ("terabytes_per_s", 0.75, "256 callers"),
        ("codec_us_per_gigaflop", 1.25, "256 callers"),
    ],
)
def test_a_slower_device_is_worse(figure: str, factor: float, load: str) -> None:
    """Launches that take 15 to 25 % longer, a slower host or slower memory break the bounds."""
    times = times_with(figure, factor)
    assert worse(asdict(predict_load(load, times)), json.loads(SAVED.read_text())[load])


@pytest.mark.thorough
@pytest.mark.parametrize("factor", [0.996, 0.998, 1.002, 1.004])
@pytest.mark.parametrize("load", SCENARIOS)
def test_another_schedule_is_not_worse(load: str, factor: float) -> None:
    """A device that differs by 0.4 %, which moves starts to other steps, breaks no bound of audio.

    The longest step in a hundred has one start more or less, which is up to a quarter of it.
    """
    figures = {name: times_with(name, factor).figures[name] for name in SPEEDS}
    times = replace(TIMES, figures=TIMES.figures | figures)
    found = worse(asdict(predict_load(load, times)), json.loads(SAVED.read_text())[load])
    assert set(found) <= {"step_p99_s"}


@pytest.mark.thorough
def test_a_limited_backlog_shortens_the_wait_of_many() -> None:
    """Without the limit, 256 callers of a plain codec stall the engine, and wait for longer."""
    plain = load_times(TABLE, CARD, "plain")
    limited = GpuSimulation(together(256), plain, 288, until_s=4.0).predict()
    with patch.object(scheduler, "_codec_room", lambda contexts, rows: 10**9):
        without = GpuSimulation(together(256), plain, 288, until_s=4.0).predict()
    assert without.stalled_s > 0.5
    assert limited.step_p99_s < 0.8 * without.step_p99_s
    assert limited.audible_p50_s < 0.6 * without.audible_p50_s


def test_a_commit_without_a_table_is_refused() -> None:
    """The comparison with an earlier commit says what it needs."""
    with pytest.raises(typer.BadParameter, match="expected a commit with benchmarks/engine"):
        _at("no-such-commit", TIMES)


def test_a_slower_device_is_predicted_to_be_slower() -> None:
    """Launches that take twice as long delay first audio by more than half of that."""
    load = "1 request/s"
    fast_s = predict_load(load, TIMES).audible_p50_s
    assert predict_load(load, times_with("launch_us", 2)).audible_p50_s > 1.5 * fast_s
