"""Times what a model's rows do: steps of many rows by stage, and the first sound of a lone row.

Rows run as in an engine that keeps up with real time: each row's frames are decoded in windows, and
rows take turns, so every step gives the codec equal work. Texts and deadlines are not modelled.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import numpy as np

from testbed.agent_text import agent_monologue
from voiceagent_tts.core import FRAME_S
from voiceagent_tts.engine.runner import Prefix, Runner
from voiceagent_tts.engine.sizes import WINDOWS_FRAMES
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.kv_pool import pages_for
from voiceagent_tts.model.prompt import Preset, Prompt, PromptBuilder
from voiceagent_tts.model.sampling import sampling_params

WINDOW_FRAMES = WINDOWS_FRAMES[-1]
_LANGUAGE = "english"
_LONE_WORDS = 12


class Steps:
    """Times the rows of one model, all of which are free before and after a measurement."""

    def __init__(self, checkpoint: Checkpoint, runner: Runner) -> None:
        self._runner = runner
        self._builder = PromptBuilder(checkpoint.config, checkpoint.tokenizer)
        self._sampling = sampling_params(checkpoint.generation, seed=0)
        self._voice = Preset(next(iter(checkpoint.config.talker_config.spk_id)))

    def line(self, rows: int, positions: int, steps: int) -> dict[str, float]:
        """Return the mean times of a step that makes a frame for each of `rows` rows.

        Stages are device times, of which the codec's overlaps the talker's; the host's is that
        during which the device was idle.

        Args:
            rows: number of rows, which speak one prompt with different seeds.
            positions: positions of their prompt.
            steps: number of measured steps, after one warm-up window.
        """
        prompt = self._long_prompt(positions)
        prefill_s, stages_s, took_s = self._time(prompt, rows, steps)
        step_s = sum(took_s) / steps
        bare_s = sum(self._time(prompt, rows, steps, has_codec=False)[2]) / steps
        return {
            "rows": rows,
            "positions": positions + WINDOW_FRAMES + steps // 2,
            "ms_per_frame": _ms(step_s),
            **{f"{stage}_ms": _ms(total_s / steps) for stage, total_s in stages_s.items()},
            "prefill_ms": _ms(prefill_s / rows),
            "p99_ms": _ms(sorted(took_s)[int(0.99 * steps)]),
            "max_ms": _ms(max(took_s)),
            "ms_without_codec": _ms(bare_s),
            "audio_s_per_s": round(rows * FRAME_S / step_s, 1),
        }

    def _time(
        self, prompt: Prompt, rows: int, steps: int, has_codec: bool = True
    ) -> tuple[float, dict[str, float], list[float]]:
        """Return the seconds of all prefills, of each stage in all steps, and of each step."""
        runner = self._runner
        before_s = runner.timings.prefill_s
        with self._speaking(prompt, rows, WINDOW_FRAMES + steps):
            for number in range(WINDOW_FRAMES):
                self._step(rows, number, has_codec)
            warm, ends_s = replace(runner.timings), [time.perf_counter()]
            for number in range(WINDOW_FRAMES, WINDOW_FRAMES + steps):
                self._step(rows, number, has_codec)
                ends_s.append(time.perf_counter())
        stages_s = {
            stage: getattr(runner.timings, f"{stage}_s") - getattr(warm, f"{stage}_s")
            for stage in ("predictor", "talker", "codec", "host")
        }
        took_s = [end_s - begin_s for begin_s, end_s in pairwise(ends_s)]
        return warm.prefill_s - before_s, stages_s, took_s

    def _step(self, rows: int, number: int, has_codec: bool) -> None:
        due = (row for row in range(rows) if (row + number + 1) % WINDOW_FRAMES == 0)
        decode = dict.fromkeys(due, WINDOW_FRAMES) if has_codec else {}
        made = self._runner.step(range(rows), decode).frames
        assert len(made) == rows, f"{len(made)} frames of {rows} rows"

    @contextmanager
    def _speaking(self, prompt: Prompt, rows: int, frames: int) -> Iterator[None]:
        """Run rows that speak within this block."""
        # An open text never ends, so every row generates all its frames with any weights.
        endless = replace(prompt, trailing_text_ids=prompt.text_ids[:1] * (frames + 1))
        count = pages_for(min(len(prompt) + frames + 1, self._runner.capacity))
        try:
            for row in range(rows):
                seeded = replace(self._sampling, seed=row)
                pages = range(1 + row * count, 1 + (row + 1) * count)
                self._runner.start(row, endless, seeded, frames + 1, is_open=True, pages=pages)
            yield
        finally:
            while self._runner.has_sound_in_flight:
                self._runner.step([], {})
            for row in range(rows):
                self._runner.cancel(row)

    def _long_prompt(self, positions: int) -> Prompt:
        """Build a prompt of exactly `positions` positions; it may end anywhere in its text."""
        text = agent_monologue(seed=1, words=positions)  # a word has at least one id
        prompt = self._builder.build(text, self._voice, _LANGUAGE)
        return Prompt(prompt.text_ids[:positions], prompt.codec_ids[:positions])

    def first_sounds(self, rounds: int) -> dict[str, float]:
        """Return the milliseconds until the samples of a lone row's first and second frame.

        Some voices start with a silent frame; their second frame is the first audible one. Each is
        measured with a cold prompt and with a prepared prefix.
        """
        text = agent_monologue(seed=2, words=_LONE_WORDS)
        prompt = self._builder.build(text, self._voice, _LANGUAGE, is_streaming=True)
        beginning = self._builder.build_prefix(self._voice, _LANGUAGE, is_streaming=True)
        prepared = self._runner.prepare(beginning, range(1, 1 + pages_for(len(beginning))))
        figures: dict[str, float] = {}
        for name, prefix in (("cold", None), ("prepared", prepared)):
            taken_s = [self._first_two(prompt, prefix) for _ in range(rounds + 1)][1:]
            for frame, times_s in zip(("first", "second"), zip(*taken_s, strict=True), strict=True):
                for rank in (50, 95, 99):
                    figure_ms = round(1000 * float(np.percentile(times_s, rank)), 2)
                    figures[f"{name}_{frame}_frame_p{rank}_ms"] = figure_ms
        return figures

    def _first_two(self, prompt: Prompt, prefix: Prefix | None) -> list[float]:
        """Return the seconds until the sound of each of a row's first two frames."""
        runner, began_s = self._runner, time.perf_counter()
        runner.start(0, prompt, self._sampling, 2, is_open=False, prefix=prefix)
        sounded_s: list[float] = []
        try:
            while len(sounded_s) < 2:
                sounds = runner.step([0], {0: 1}).sounds
                while not sounds:
                    sounds = runner.step([], {}).sounds
                frames = sum(sound.frames for sound in sounds)
                sounded_s += [time.perf_counter() - began_s] * frames
        finally:
            runner.cancel(0)
        return sounded_s[:2]


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 4)
