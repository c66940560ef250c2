"""The warm-up measures costs with real rows, and the scheduler starts from them."""

import logging
import re
from typing import Any

import pytest

from testbed.engine_driving import Driver, load
from voiceagent_tts.engine import make_runner
from voiceagent_tts.engine.make_runner import measure_costs
from voiceagent_tts.engine.runner import StepCost


def test_costs_are_of_few_half_and_all_rows(caplog: pytest.LogCaptureFixture) -> None:
    """Steps of few, half and all rows are measured, first without starts; all rows end free."""
    caplog.set_level(logging.INFO, make_runner.__name__)
    driver = Driver(rows=5)
    costs = measure_costs(driver.runner, load()[0].generation)
    assert [(cost.rows, cost.starts) for cost in costs] == [
        *[(1, 0)] * 3,
        *[(3, 0)] * 3,
        *[(5, 0)] * 3,
        (1, 1),
        (3, 3),
        (5, 5),
    ]
    assert all(cost.seconds > 0 for cost in costs)
    assert len(driver.runner.free_rows) == 5
    assert not driver.runner.has_sound_in_flight
    assert driver.runner.timings.steps == 0
    ms = r"[\d.]+ ms with"
    assert re.fullmatch(rf"frames of 80 ms take {ms} 1, {ms} 3, {ms} 5 rows", caplog.messages[-1])


def test_a_start_costs_what_the_host_does_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured cost of starts includes building the rows on the host."""
    driver, now = Driver(rows=2), [0.0]
    monkeypatch.setattr(make_runner.time, "perf_counter", lambda: now[0])
    start = driver.runner.start

    def slow_start(*how: Any, **more: Any) -> None:
        now[0] += 1
        start(*how, **more)

    monkeypatch.setattr(driver.runner, "start", slow_start)
    costs = measure_costs(driver.runner, load()[0].generation)
    assert {(cost.starts, cost.seconds) for cost in costs} == {(0, 0), (1, 1), (2, 2)}


def test_a_warm_up_changes_no_sound() -> None:
    """A row sounds as it does on an engine without a warm-up."""
    sounds = list[list[object]]()
    for is_warm in (False, True):
        driver = Driver(rows=2)
        if is_warm:
            measure_costs(driver.runner, load()[0].generation)
        sounds.append([*driver.run(*driver.open(1, "Hello there."))])
    assert sounds[0] == sounds[1]


def test_few_pages_measure_few_rows() -> None:
    """The warm-up measures no more rows at a time than fit into memory."""
    driver = Driver(rows=4, pages=2)
    costs = measure_costs(driver.runner, load()[0].generation)
    assert {cost.rows for cost in costs} == {1, 2}


def test_a_cold_engine_starts_contexts_together() -> None:
    """After a warm-up several contexts start in one step, even beside an active one."""
    starts = dict[bool, int]()
    for is_warm in (False, True):
        costs = (StepCost(1, 0, 0.001), StepCost(4, 0, 0.001), StepCost(1, 1, 0.002))
        driver = Driver(rows=4, step_s=0.001, costs=costs if is_warm else ())
        driver.send(*driver.open(0, "Hello there."))
        while not driver.events:
            driver.engine.step()
        for context in range(1, 4):
            driver.send(*driver.open(context, "Hello there."))
        before = driver.engine.metrics["starts_total"]
        driver.engine.step()
        starts[is_warm] = int(driver.engine.metrics["starts_total"] - before)
    assert starts == {False: 1, True: 3}
