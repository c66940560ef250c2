"""Times of matrix products: measured once per machine, and read from a file afterwards."""

import json
import logging
import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, count, repeat
from pathlib import Path

import pytest
import torch

from voiceagent_tts.engine import product_times
from voiceagent_tts.engine.product_times import (
    Shape,
    is_usable,
    steady_times,
    stored_times,
    time_products,
    times_file,
)
from voiceagent_tts.model.products import Kernel

AGREE = product_times._AGREE
SHAPE = Shape(64, 96, torch.float32)
WANTED: dict[Shape, list[Kernel]] = {
    SHAPE: [kernel for kernel in ("packed", "plain", "int8") if is_usable(kernel, SHAPE)]
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the user's cache folder into the test's, and take any times on a busy machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(product_times, "_AGREE", math.inf)
    return tmp_path / "cache"


def test_times_are_measured_once() -> None:
    """The second start reads what the first has measured."""
    first = time_products(WANTED, rows=4)
    assert first.measured_s > 0
    assert set(WANTED[SHAPE]) == set(first.times[SHAPE])
    assert all(time > 0 for time in first.times[SHAPE].values())
    second = time_products(WANTED, rows=4)
    assert (second.measured_s, second.times) == (0.0, first.times)
    assert stored_times() == {"64x96 float32": first.times[SHAPE]}


def test_what_was_not_asked_before_is_measured() -> None:
    """Other shapes, more kernels and other numbers of rows and threads are not in the file."""
    time_products({SHAPE: ["plain"]}, rows=1)
    assert time_products({SHAPE: ["plain"]}, rows=1).measured_s == 0
    assert time_products(WANTED, rows=1).measured_s > 0
    assert time_products({Shape(32, 96, torch.float32): ["plain"]}, rows=1).measured_s > 0
    assert time_products({SHAPE: ["plain"]}, rows=8).measured_s > 0
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        assert time_products({SHAPE: ["plain"]}, rows=1).measured_s > 0
    finally:
        torch.set_num_threads(before)
    assert time_products({SHAPE: ["plain"]}, rows=1).measured_s == 0


class Machine:
    """A clock, and products that take scripted times: their own and a delay."""

    def __init__(self, seconds: dict[str, float], delays: Iterator[float]) -> None:
        self.now = 0.0
        self._seconds = seconds
        self._delays = delays

    def clock(self) -> float:
        """Return the time."""
        return self.now

    def calls(self) -> dict[str, Callable[[], object]]:
        """Return the products by their names."""
        return {name: partial(self._call, name) for name in self._seconds}

    def _call(self, name: str) -> None:
        self.now += self._seconds[name] + next(self._delays)


def test_a_disturbance_at_the_start_changes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that start beside ours take the processor for a second, and then it is quiet."""
    monkeypatch.setattr(product_times, "_AGREE", AGREE)
    machine = Machine(
        {"fast": 1e-3, "slow": 2e-3}, chain((0.3 * 0.8**n for n in range(30)), repeat(0.0))
    )
    found = steady_times(machine.calls(), 2.0, machine.clock)
    assert found == pytest.approx({"fast": 1e-3, "slow": 2e-3})


def test_a_machine_without_rest_has_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no time is like another, none is better than a wrong one."""
    monkeypatch.setattr(product_times, "_AGREE", AGREE)
    machine = Machine({"fast": 1e-4, "slow": 1e-3}, (0.01 * 1.2**n for n in count()))
    assert steady_times(machine.calls(), 1.0, machine.clock) == {}
    assert machine.now < 2.0


def test_a_busy_machine_stores_nothing_and_takes_the_first_kernels(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cache: Path
) -> None:
    """What was measured before stays in use; the rest is measured at the next start."""
    time_products({SHAPE: ["plain"]}, rows=1)
    other = Shape(32, 96, torch.float32)
    with monkeypatch.context() as busy:
        busy.setattr(product_times, "_AGREE", 0.0)
        busy.setattr(product_times, "_MOST_S", 0.01)
        timing = time_products({SHAPE: ["plain"], other: ["packed", "plain"]}, rows=1)
    assert set(timing.times) == {SHAPE}
    assert "too busy" in caplog.text
    assert set(stored_times()) == {str(SHAPE)}
    assert set(time_products({other: ["plain"]}, rows=1).times) == {other}


def test_nothing_to_time_writes_nothing(cache: Path) -> None:
    """Without products there is no file."""
    assert time_products({}, rows=8).measured_s == 0
    assert not cache.exists()


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"a": 1}', '{"a": {"b": 2}}', "\0\xff"])
def test_a_broken_file_is_measured_again(broken: str) -> None:
    """A file without sound times is replaced."""
    times_file().parent.mkdir(parents=True)
    times_file().write_text(broken)
    assert stored_times() == {}
    assert time_products(WANTED, rows=1).measured_s > 0
    assert time_products(WANTED, rows=1).measured_s == 0


@pytest.mark.parametrize("time", ["0", "-1.5", "NaN", "Infinity", '"fast"', "null"])
def test_impossible_times_are_measured_again(time: str) -> None:
    """Times that no product can take are not used."""
    time_products(WANTED, rows=1)
    stored = json.loads(times_file().read_text())
    for shapes in stored.values():
        shapes[str(SHAPE)]["plain"] = "HERE"
    times_file().write_text(json.dumps(stored).replace('"HERE"', time))
    assert time_products(WANTED, rows=1).measured_s > 0


def test_a_folder_that_cannot_be_written_is_no_failure(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Times that cannot be stored are used, and a log line says why."""
    cache.write_text("a file where the folder should be")
    with caplog.at_level(logging.INFO, logger=product_times.__name__):
        timing = time_products(WANTED, rows=1)
    assert set(WANTED[SHAPE]) == set(timing.times[SHAPE])
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "times of matrix products cannot be stored"
    ]


def test_a_write_that_fails_leaves_no_file_behind() -> None:
    """Each start with a full disk would leave another one."""
    times_file().mkdir(parents=True)  # cannot be replaced by a file
    time_products(WANTED, rows=1)
    assert list(times_file().parent.iterdir()) == [times_file()]


def test_a_user_without_a_home_has_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a home folder, times go to the folder of temporary files."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(product_times.Path, "home", no_home)
    assert times_file().name == "products.json"
