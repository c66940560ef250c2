"""Measure the times of a runner's steps with many rows.

Drives rows like an engine that keeps up with real time. Each row's frames are decoded in windows,
and rows take turns, so every step gives the codec equal work. Texts and deadlines are not modelled.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

from voiceagent_tts.core import FRAME_S
from voiceagent_tts.engine.row_memory import RowMemory
from voiceagent_tts.engine.runner import Runner, Timings
from voiceagent_tts.engine.sizes import WINDOWS_FRAMES
from voiceagent_tts.model.kv_pool import pages_for
from voiceagent_tts.model.prompt import Prompt
from voiceagent_tts.model.sampling import SamplingParams

WINDOW_FRAMES = WINDOWS_FRAMES[-1]


@dataclass(frozen=True, slots=True)
class StepTime:
    """Average duration of one step, which generates one frame for every row.

    Attributes:
        rows: number of speaking rows.
        positions: positions in each row's KV cache half way through the measurement.
        step_s: wall time of the step. It includes the times below, except codec work that overlaps
            with the talker.
        predictor_s: device time of the code predictor.
        talker_s: device time of the talker.
        codec_s: time of the codec on its device.
        host_s: host time during which the device was idle.
        prefill_s: device time per prompt when all prompts are prefilled together.
        p99_s: wall time that one step in a hundred exceeds.
        max_s: wall time of the longest step.
    """

    rows: int
    positions: int
    step_s: float
    predictor_s: float
    talker_s: float
    codec_s: float
    host_s: float
    prefill_s: float
    p99_s: float = 0.0
    max_s: float = 0.0

    @property
    def audio_s_per_s(self) -> float:
        """Seconds of audio generated per second, over all rows."""
        return self.rows * FRAME_S / self.step_s


def time_steps(
    runner: Runner,
    prompt: Prompt,
    sampling: SamplingParams,
    rows: int,
    steps: int,
    has_codec: bool = True,
) -> StepTime:
    """Measure steps of `rows` rows that speak one prompt with different seeds.

    Args:
        runner: runner whose rows and pages are all free.
        prompt: prompt as long as the cache to measure; with the frames it must fit into a row.
        sampling: sampling parameters; the seed is replaced.
        rows: number of rows.
        steps: number of measured steps, after one warm-up window.
        has_codec: whether the codec decodes the frames beside the steps.
    """
    frames = WINDOW_FRAMES + steps
    before = replace(runner.timings)
    with _speaking(runner, prompt, sampling, rows, frames) as speaking:
        for number in range(WINDOW_FRAMES):
            _step(runner, speaking, number, has_codec)
        warm, ends_s = replace(runner.timings), [time.perf_counter()]
        for number in range(WINDOW_FRAMES, frames):
            _step(runner, speaking, number, has_codec)
            ends_s.append(time.perf_counter())
        after = replace(runner.timings)
    prefill_s = (warm.prefill_s - before.prefill_s) / rows
    positions = len(prompt) + WINDOW_FRAMES + steps // 2
    return _time_of(warm, after, rows, positions, ends_s, prefill_s)


def rows_in_time(times: Sequence[StepTime], budget_s: float) -> int:
    """Return the most rows whose step takes at most `budget_s`, by linear interpolation.

    Never more than the largest measured number of rows; 0 if even the smallest is too slow.

    Args:
        times: step times for ascending numbers of rows.
        budget_s: duration of a frame, or the share of it that a step may take.
    """
    fits = [step for step in times if step.step_s <= budget_s]
    if not fits:
        return 0
    last = fits[-1]
    slower = next((step for step in times if step.rows > last.rows), None)
    if slower is None:
        return last.rows
    share = (budget_s - last.step_s) / (slower.step_s - last.step_s)
    return last.rows + int(share * (slower.rows - last.rows))


def _time_of(
    warm: Timings,
    after: Timings,
    rows: int,
    positions: int,
    ends_s: Sequence[float],
    prefill_s: float,
) -> StepTime:
    steps = after.steps - warm.steps
    took_s = sorted(end_s - begin_s for begin_s, end_s in pairwise(ends_s))
    return StepTime(
        rows,
        positions,
        sum(took_s) / steps,
        (after.predictor_s - warm.predictor_s) / steps,
        (after.talker_s - warm.talker_s) / steps,
        (after.codec_s - warm.codec_s) / steps,
        (after.host_s - warm.host_s) / steps,
        prefill_s,
        p99_s=took_s[int(0.99 * steps)],
        max_s=took_s[-1],
    )


def _step(runner: Runner, rows: range, number: int, has_codec: bool) -> None:
    due = (row for row in rows if (row + number + 1) % WINDOW_FRAMES == 0)
    decode = dict.fromkeys(due, WINDOW_FRAMES) if has_codec else {}
    made = runner.step(rows, decode).frames
    assert len(made) == len(rows), f"{len(made)} frames of {len(rows)} rows"


@contextmanager
def _speaking(
    runner: Runner, prompt: Prompt, sampling: SamplingParams, rows: int, frames: int
) -> Iterator[range]:
    """Run rows that speak within this block; all are free afterwards."""
    speaking = range(rows)
    # An open text never ends, so every row generates all its frames with any weights.
    endless = replace(prompt, trailing_text_ids=prompt.text_ids[:1] * (frames + 1))
    memory = RowMemory(rows, runner.pages)
    count = pages_for(min(len(prompt) + frames + 1, runner.capacity))
    try:
        for row in speaking:
            seeded, pages = replace(sampling, seed=row), memory.take(count, count).pages
            runner.start(row, endless, seeded, frames + 1, is_open=True, pages=pages)
        yield speaking
    finally:
        while runner.has_sound_in_flight:
            runner.step([], {})
        for row in speaking:
            runner.cancel(row)
