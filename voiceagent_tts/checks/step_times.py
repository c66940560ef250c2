"""How long a runner's steps take: rows that all speak, and a lone row's way to its first sound.

Drives rows as an engine does that keeps up: each row's frames become sound in windows, and rows
take turns, so that the codec has as much to do in every step. Knows no texts and no deadlines.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from voiceagent_tts.core import FRAME_S
from voiceagent_tts.engine.runner import Prefix, Runner, Timings
from voiceagent_tts.engine.sizes import WINDOWS_FRAMES
from voiceagent_tts.model.prompt import Prompt
from voiceagent_tts.model.sampling import SamplingParams

WINDOW_FRAMES = WINDOWS_FRAMES[-1]


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one step, on average: one frame of every row.

    Attributes:
        rows: that speak.
        positions: that each looks back over, half way.
        step_s: as the caller of the step sees it; all below is part of it, except what the codec
            does beside the others.
        predictor_s: of the device.
        talker_s: of the device.
        codec_s: of the codec's device.
        host_s: of the host, while the device waited.
        prefill_s: of the device, for one prompt, when all are taken in together.
    """

    rows: int
    positions: int
    step_s: float
    predictor_s: float
    talker_s: float
    codec_s: float
    host_s: float
    prefill_s: float

    @property
    def audio_s_per_s(self) -> float:
        """Speech that all rows make in a second."""
        return self.rows * FRAME_S / self.step_s


def time_steps(
    runner: Runner, prompt: Prompt, sampling: SamplingParams, rows: int, steps: int
) -> StepTime:
    """Let `rows` rows speak the same prompt, each with a seed of its own.

    Args:
        runner: with as many free rows; what it has captured stays warm.
        prompt: long enough for the positions that are meant; with the frames it fits a row.
        sampling: how.
        rows: how many.
        steps: to be timed, after a window that is not.
    """
    frames = WINDOW_FRAMES + steps
    before = replace(runner.timings)
    with _speaking(runner, prompt, sampling, rows, frames) as speaking:
        for number in range(WINDOW_FRAMES):
            _step(runner, speaking, number)
        warm, began_s = replace(runner.timings), time.perf_counter()
        for number in range(WINDOW_FRAMES, frames):
            _step(runner, speaking, number)
        step_s = (time.perf_counter() - began_s) / steps
        after = replace(runner.timings)
    prefill_s = (warm.prefill_s - before.prefill_s) / rows
    positions = len(prompt) + WINDOW_FRAMES + steps // 2
    return _time_of(warm, after, rows, positions, step_s, prefill_s)


def rows_in_time(times: Sequence[StepTime], budget_s: float) -> int:
    """The most rows whose step takes no longer than `budget_s`, on straight lines between times.

    Beyond the most rows that were timed nothing is claimed; 0 where the fewest are too slow.

    Args:
        times: of ascending numbers of rows.
        budget_s: a frame's length, or the share of it that steps may take.
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
    warm: Timings, after: Timings, rows: int, positions: int, step_s: float, prefill_s: float
) -> StepTime:
    steps = after.steps - warm.steps
    return StepTime(
        rows,
        positions,
        step_s,
        (after.predictor_s - warm.predictor_s) / steps,
        (after.talker_s - warm.talker_s) / steps,
        (after.codec_s - warm.codec_s) / steps,
        (after.host_s - warm.host_s) / steps,
        prefill_s,
    )


def _step(runner: Runner, rows: range, number: int) -> None:
    decode = {row: WINDOW_FRAMES for row in rows if (row + number + 1) % WINDOW_FRAMES == 0}
    made = runner.step(rows, decode).frames
    assert len(made) == len(rows), f"{len(made)} frames of {len(rows)} rows"


@contextmanager
def _speaking(
    runner: Runner, prompt: Prompt, sampling: SamplingParams, rows: int, frames: int
) -> Iterator[range]:
    """Rows that speak inside; all are free afterwards."""
    speaking = range(rows)
    # Text that is still open has no end: whatever the weights, every row makes all its frames.
    endless = replace(prompt, trailing_text_ids=prompt.text_ids[:1] * (frames + 1))
    try:
        for row in speaking:
            seeded = replace(sampling, seed=row)
            runner.start(row, endless, seeded, frames + 1, is_open=True)
        yield speaking
    finally:
        while runner.has_sound_in_flight:
            runner.step([], {})
        for row in speaking:
            runner.cancel(row)


def time_first_sounds(
    runner: Runner, prompt: Prompt, sampling: SamplingParams, prefix: Prefix | None = None
) -> tuple[float, float]:
    """Seconds from the start of a lone row to the sound of its first and of its second frame.

    Some voices begin with a frame of silence: their second is the first that is heard.

    Args:
        runner: whose rows are all free.
        prompt: to be spoken.
        sampling: how.
        prefix: with which the prompt begins, where that is prepared.
    """
    began_s = time.perf_counter()
    runner.start(0, prompt, sampling, 2, is_open=False, prefix=prefix)
    heard: list[float] = []
    try:
        while len(heard) < 2:
            sounds = runner.step([0], {0: 1}).sounds
            while not sounds:
                sounds = runner.step([], {}).sounds
            heard += [time.perf_counter() - began_s] * sum(sound.frames for sound in sounds)
    finally:
        runner.cancel(0)
    return heard[0], heard[1]
