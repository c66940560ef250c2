"""Times an engine's steps, stage by stage, and compares them with the card's roofline.

Needs no plots and no command line, so that it runs on a machine with few packages.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.common.report import percentiles
from benchmarks.engine.card import card_of, device_name
from benchmarks.engine.loading import LoadedRows, load_rows
from benchmarks.engine.roofline import STAGES, Roofline
from benchmarks.engine.roofline import StepTime as LeastTime
from benchmarks.engine.step_times import (
    WINDOW_FRAMES,
    StepTime,
    rows_in_time,
    time_steps,
)
from testbed.agent_text import agent_monologue
from voiceagent_tts.core import FRAME_S
from voiceagent_tts.engine.load import ModelSource
from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.engine.runner import Prefix, Runner
from voiceagent_tts.model.config import CodecDecoderConfig
from voiceagent_tts.model.kv_pool import pages_for
from voiceagent_tts.model.prompt import Preset, Prompt, PromptBuilder
from voiceagent_tts.model.sampling import SamplingParams, sampling_params

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_LANGUAGE = "english"
_LONE_WORDS = 12


@dataclass(frozen=True, slots=True)
class Line:
    """Measured times for one number of rows, and the least times that the card allows."""

    took: StepTime
    least: LeastTime
    least_prefill_s: float

    def figures(self) -> dict[str, float]:
        """Return the figures under their names in the JSON object."""
        took, least = self.took, self.least
        stages = {f"{name}_ms": _ms(getattr(took, f"{name}_s")) for name in STAGES}
        return {
            "rows": took.rows,
            "positions": took.positions,
            "ms_per_frame": _ms(took.step_s),
            **stages,
            "prefill_ms": _ms(took.prefill_s),
            "p99_ms": _ms(took.p99_s),
            "max_ms": _ms(took.max_s),
            "audio_s_per_s": round(took.audio_s_per_s, 1),
            "roofline_ms": _ms(least.total_s),
            "roofline_talker_ms": _ms(least.talker_s),
            "roofline_predictor_ms": _ms(least.predictor_s),
            "roofline_codec_ms": _ms(least.codec_s),
            "roofline_prefill_ms": _ms(self.least_prefill_s),
            "times_roofline": round(took.step_s / least.total_s, 2),
        }


class EngineBench:
    """Times the rows of one model.

    Args:
        rows: the model's rows.
        codec: configuration of the model's codec, for its roofline.
        described: facts about the run, under their names in the JSON object.
    """

    def __init__(
        self, rows: LoadedRows, codec: CodecDecoderConfig, described: Mapping[str, Any]
    ) -> None:
        checkpoint, network = rows.checkpoint, rows.checkpoint.network
        self._runner = rows.runner
        weight_bytes = network.talker.codec_embedding.element_size()
        self._roofline = Roofline(checkpoint.config, codec, weight_bytes)
        self._card = card_of(network.device)
        self._builder = PromptBuilder(checkpoint.config, checkpoint.tokenizer)
        self._sampling = sampling_params(checkpoint.generation, seed=0)
        self._voice = Preset(next(iter(checkpoint.config.talker_config.spk_id)))
        self.described = {
            **described,
            "device": device_name(network.device),
            "card": self._card.name,
            "card_tb_per_s": round(self._card.bytes_per_s / 1e12, 3),
            "card_tflop_per_s": round(self._card.flop_per_s / 1e12, 1),
            **rows.described(),
        }

    def measure(self, rows: int, positions: int, steps: int) -> Line:
        """Time steps of `rows` rows whose prompts have `positions` positions each."""
        prompt = self._long_prompt(positions)
        took = time_steps(self._runner, prompt, self._sampling, rows, steps)
        least = self._roofline.step(self._card, rows, took.positions, WINDOW_FRAMES)
        prefill = self._roofline.talker(rows, len(prompt), new=len(prompt))
        return Line(took, least, prefill.seconds(self._card) / rows)

    def ms_without_codec(self, rows: int, positions: int, steps: int) -> float:
        """Return the milliseconds of the same steps while the codec does nothing."""
        prompt = self._long_prompt(positions)
        took = time_steps(self._runner, prompt, self._sampling, rows, steps, has_codec=False)
        return _ms(took.step_s)

    def first_sounds(self, rounds: int) -> dict[str, float]:
        """Return the milliseconds until the samples of a lone row's first and second frame.

        Each is measured with a cold prompt and with a prepared prefix.
        """
        text = agent_monologue(seed=2, words=_LONE_WORDS)
        prompt = self._builder.build(text, self._voice, _LANGUAGE, is_streaming=True)
        beginning = self._builder.build_prefix(self._voice, _LANGUAGE, is_streaming=True)
        figures: dict[str, float] = {}
        prepared = self._runner.prepare(beginning, range(1, 1 + pages_for(len(beginning))))
        for name, prefix in (("cold", None), ("prepared", prepared)):
            taken = [
                time_first_sounds(self._runner, prompt, self._sampling, prefix)
                for _ in range(rounds + 1)
            ][1:]
            for place, frame in enumerate(("first", "second")):
                times_ms = [1000 * sounds[place] for sounds in taken]
                for rank, value in percentiles(times_ms).items():
                    figures[f"{name}_{frame}_frame_{rank}"] = value
        return figures

    def _long_prompt(self, positions: int) -> Prompt:
        """Build a prompt of exactly `positions` positions; it may end anywhere in its text."""
        text = agent_monologue(seed=1, words=positions)  # a word has at least one id
        prompt = self._builder.build(text, self._voice, _LANGUAGE)
        return Prompt(prompt.text_ids[:positions], prompt.codec_ids[:positions])


def build_bench(
    options: Qwen3Options, source: ModelSource, codec: CodecDecoderConfig
) -> EngineBench:
    """Load a model as a server does.

    Args:
        options: as for a server.
        source: the model.
        codec: configuration of its codec.

    Raises:
        GraphFault: as `load_rows`.
    """
    described = {"model": source.name, "attention": options.attention or "default"}
    return EngineBench(load_rows(options, source), codec, described)


def rows_figures(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarize lines of different numbers of rows, as `Line.figures` returns them.

    Returns:
        Milliseconds per frame of the fewest and the most rows, and the number of rows that finish
        a frame in time.
    """
    lines = sorted(lines, key=lambda line: line["rows"])
    fewest, most = lines[0], lines[-1]
    steps = [
        StepTime(line["rows"], line["positions"], line["ms_per_frame"] / 1000, 0, 0, 0, 0, 0)
        for line in lines
    ]
    return {
        f"ms_per_frame_{fewest['rows']}": fewest["ms_per_frame"],
        f"ms_per_frame_{most['rows']}": most["ms_per_frame"],
        "audio_s_per_s": max(line["audio_s_per_s"] for line in lines),
        "rows_in_time": rows_in_time(steps, FRAME_S),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 4)


def time_first_sounds(
    runner: Runner, prompt: Prompt, sampling: SamplingParams, prefix: Prefix | None = None
) -> tuple[float, float]:
    """Measure the seconds from starting a single row to the audio of its first two frames.

    Some voices start with a silent frame; their second frame is the first audible one.

    Args:
        runner: runner whose rows are all free.
        prompt: prompt to speak.
        sampling: sampling parameters.
        prefix: cached keys and values of the prompt's start, if prepared.
    """
    began_s = time.perf_counter()
    runner.start(0, prompt, sampling, 2, is_open=False, prefix=prefix)
    audio_at_s: list[float] = []
    try:
        while len(audio_at_s) < 2:
            sounds = runner.step([0], {0: 1}).sounds
            while not sounds:
                sounds = runner.step([], {}).sounds
            audio_at_s += [time.perf_counter() - began_s] * sum(sound.frames for sound in sounds)
    finally:
        runner.cancel(0)
    return audio_at_s[0], audio_at_s[1]
