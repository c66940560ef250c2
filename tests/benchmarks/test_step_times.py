"""Timing a runner: every row speaks, every stage is timed, and all rows are free afterwards."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.engine.step_times import StepTime, rows_in_time, time_steps
from testbed.engine_driving import CUSTOM_VOICE, load
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.model.prompt import Preset, Prompt, PromptBuilder
from voiceagent_tts.model.sampling import SamplingParams, sampling_params

ROWS = 3


@pytest.fixture
def runner() -> Runner:
    """A runner with three rows of a tiny model."""
    checkpoint, codec = load()
    return Runner(checkpoint, codec, ROWS, capacity=256)


@pytest.fixture
def builder() -> PromptBuilder:
    """The prompt builder of that model."""
    checkpoint, _ = load()
    return PromptBuilder(checkpoint.config, checkpoint.tokenizer)


@pytest.fixture
def prompt(builder: PromptBuilder) -> Prompt:
    """The prompt of one sentence."""
    return builder.build("One more sentence, for timing.", Preset("ryan"), "english")


def sampling() -> SamplingParams:
    """The checkpoint's own sampling settings, with rows that never end."""
    checkpoint, _ = load(CUSTOM_VOICE)
    return sampling_params(checkpoint.generation, seed=0)


def test_every_part_of_a_step_has_its_time(runner: Runner, prompt: Prompt) -> None:
    """Stages add up to at most the step; the real-time factor follows; all rows are free again."""
    timed = time_steps(runner, prompt, sampling(), rows=ROWS, steps=12)
    assert timed.rows == ROWS
    assert timed.positions == len(prompt) + 18
    parts = (timed.predictor_s, timed.talker_s, timed.codec_s)
    assert all(part > 0 for part in parts)
    assert 0 < timed.prefill_s
    assert timed.host_s >= 0
    assert sum(parts) <= timed.step_s * 1.001
    assert timed.audio_s_per_s == pytest.approx(ROWS * 0.08 / timed.step_s)
    assert runner.free_rows == list(range(ROWS))


def test_rows_are_free_when_timing_fails(runner: Runner, prompt: Prompt) -> None:
    """More frames than fit into a row are an error, and every row is free afterwards."""
    with pytest.raises(AssertionError, match="0 frames of 1 rows"):
        time_steps(runner, prompt, replace(sampling(), seed=3), rows=1, steps=400)
    assert runner.free_rows == list(range(ROWS))


@pytest.mark.parametrize(
    ("times_ms", "budget_ms", "rows"),
    [
        (((1, 10), (2, 12), (4, 20)), 80, 4),
        (((1, 10), (10, 100)), 80, 8),
        (((1, 10), (2, 60), (4, 110)), 80, 2),
        (((1, 90), (2, 95)), 80, 0),
    ],
)
def test_rows_in_time_lie_between_those_that_were_timed(
    times_ms: Sequence[tuple[int, float]], budget_ms: float, rows: int
) -> None:
    """Between two timed numbers of rows, the number that is in time is interpolated.

    It never exceeds the largest timed number, and is zero if one row is late.
    """
    times = [StepTime(count, 200, ms / 1000, 0, 0, 0, 0, 0) for count, ms in times_ms]
    assert rows_in_time(times, budget_ms / 1000) == rows
