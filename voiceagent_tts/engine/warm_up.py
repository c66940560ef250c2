"""Measures a runner's steps before the first context opens.

The scheduler starts one row per step while it does not know what steps and starts cost. Without
these measurements 64 contexts that open together on a cold engine wait for 64 steps.
"""

import logging
import time
from collections.abc import Iterator

from voiceagent_tts.core import FRAME_S
from voiceagent_tts.engine.runner import Runner, StepCost
from voiceagent_tts.model.config import GenerationConfig
from voiceagent_tts.model.prompt import NO_CODEC, Prompt
from voiceagent_tts.model.sampling import sampling_params

_PROMPT_POSITIONS = 32
"""Short enough that the prompt and the frames that follow fit into one page."""
_STEPS = 3

_logger = logging.getLogger(__name__)


def measure_costs(runner: Runner, generation: GenerationConfig) -> tuple[StepCost, ...]:
    """Start and step few, half and all rows, free them again, and log how long steps took.

    Args:
        runner: without rows in use.
        generation: settings of the checkpoint, so that sampling costs what it costs in service.

    Returns:
        Steps without starts first, because the cost of a start is estimated from the difference.
    """
    most = min(runner.max_rows, runner.pages)
    counts = sorted({1, (most + 1) // 2, most})
    for count in counts:  # the first replay uploads its graph, and libraries load what they need
        list(_step_rows(runner, generation, count))
    costs = [cost for count in counts for cost in _step_rows(runner, generation, count)]
    runner.reset_timings()
    steps = {cost.rows: f"{cost.seconds * 1000:.1f} ms with {cost.rows}" for cost in costs}
    _logger.info("frames of %.0f ms take %s rows", FRAME_S * 1000, ", ".join(steps.values()))
    return tuple(sorted(costs, key=lambda cost: cost.starts))


def _step_rows(runner: Runner, generation: GenerationConfig, count: int) -> Iterator[StepCost]:
    """Time one step that starts `count` rows, and some that follow."""
    rows = runner.free_rows[:count]
    # Text without end keeps every row alive, whatever the model samples.
    endless_text = (0,) * (_STEPS + 2)
    prompt = Prompt((0,) * _PROMPT_POSITIONS, (NO_CODEC,) * _PROMPT_POSITIONS, endless_text)
    try:
        for number in range(1 + _STEPS):
            began_s = time.perf_counter()
            for row in () if number else rows:
                sampling = sampling_params(generation, seed=row)
                runner.start(row, prompt, sampling, _STEPS + 2, is_open=True, pages=[row + 1])
            runner.step(rows, dict.fromkeys(rows, 1))
            yield StepCost(count, 0 if number else count, time.perf_counter() - began_s)
    finally:
        while runner.has_sound_in_flight:
            runner.step([], {})
        for row in rows:
            runner.cancel(row)
