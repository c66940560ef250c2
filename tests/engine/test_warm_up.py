"""The warm-up measures costs with real rows, and the scheduler starts from them."""

from testbed.engine_driving import Driver, load
from voiceagent_tts.engine.make_runner import measure_costs
from voiceagent_tts.engine.runner import StepCost


def test_a_warm_up_changes_no_sound() -> None:
    sounds = list[list[object]]()
    for is_warm in (False, True):
        driver = Driver(rows=2)
        if is_warm:
            measure_costs(driver.runner, load()[0].generation)
        sounds.append([*driver.run(*driver.open(1, "Hello there."))])
    assert sounds[0] == sounds[1]


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
