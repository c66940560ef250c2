"""Does a device compute what it should? Compares it with its own plain calls and with a CPU.

- Graphs: rows that start one after the other run once as captured graphs, and once as the same
  passes launched one by one, in equal sizes. Codes and samples must be equal bit for bit.
- Choices: along one speech, the most likely code at every place, in float32 on the device and on a
  CPU. Two correct implementations differ where two codes are nearly as likely, so that each
  difference is reported with its margin: how far the CPU's first code was ahead of its second.
- Precision: the choices of the precision that is served, against those in float32.

All run with the kernels that are served: fused ones where this device can have them. Knows no
engine and no clock.
"""

from collections import deque
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.engine.loading import GraphFault
from testbed.agent_text import agent_monologue
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.engine.model_source import ModelSource
from voiceagent_tts.engine.replay import Choices, choices_along
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import graph_sizes
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.kernels import find_fault
from voiceagent_tts.model.layers import Kernels
from voiceagent_tts.model.prompt import Preset, Prompt, PromptBuilder
from voiceagent_tts.model.sampling import SamplingParams, sampling_params

_LANGUAGE = "english"
_WORDS = 12
_CAPACITY = 256
_NEAR_TIE = 1e-3
_STEPS_A_WINDOW = 5

Spoken = tuple[list[tuple[int, int]], dict[int, bytes]]
"""(row, code) of every frame in the order of generation, and each row's PCM."""


def served_kernels(
    source: ModelSource, device: torch.device, dtype: torch.dtype
) -> tuple[Kernels, str]:
    """Return the kernels that a server would run, and why they are plain; empty on a CPU."""
    if device.type == "cpu":
        return "plain", ""
    fault = find_fault(source.config.talker_config, dtype, device)
    return ("fused", "") if fault is None else ("plain", fault)


def graphs_against_plain(
    source: ModelSource, device: torch.device, dtype: torch.dtype, rows: int, frames: int
) -> dict[str, Any]:
    """Generate `frames` frames of `rows` rows of a CustomVoice model both ways, and compare.

    Raises:
        GraphFault: the graphs cannot be captured.
    """
    kernels, fault = served_kernels(source, device, dtype)
    checkpoint = source.checkpoint(dtype, device, "sdpa", kernels=kernels, is_packed=True)
    codec = source.codec(device)
    sampling = sampling_params(checkpoint.generation, seed=0)
    sizes = graph_sizes(rows, _CAPACITY, has_windows=kernels == "plain")
    prompts = [_prompt(checkpoint, row) for row in range(rows)]

    def speak(*, has_graphs: bool) -> Spoken:
        runner = Runner(checkpoint, codec, rows, _CAPACITY, sizes=sizes, has_graphs=has_graphs)
        try:
            runner.graphs.capture(lambda done, total: None)
        except Exception as error:
            if has_graphs:
                raise GraphFault(str(error)) from error
            raise
        return _speak(runner, prompts, sampling, frames)

    (codes, sound), (plain_codes, plain_sound) = speak(has_graphs=True), speak(has_graphs=False)
    same_codes = sum(one == other for one, other in zip(codes, plain_codes, strict=True))
    same_sound = sum(sound[row] == plain_sound[row] for row in range(rows))
    return {
        "kernels": kernels,
        "kernel_fault": fault,
        "graph_frames": len(codes),
        "graph_codes_equal": round(same_codes / len(codes), 5),
        "graph_rows": rows,
        "graph_rows_with_equal_sound": same_sound,
    }


def _speak(runner: Runner, prompts: list[Prompt], sampling: SamplingParams, frames: int) -> Spoken:
    """Start a row in every step; decode several frames of all rows in every fifth step."""
    codes: list[tuple[int, int]] = []
    sound = dict.fromkeys(range(len(prompts)), b"")
    waiting, speaking, steps = deque(enumerate(prompts)), set[int](), 0
    while waiting or speaking or steps % _STEPS_A_WINDOW or runner.has_sound_in_flight:
        if waiting:
            row, prompt = waiting.popleft()
            # Text that is still open has no end: every row makes all its frames.
            endless = replace(prompt, trailing_text_ids=prompt.text_ids[:1] * (frames + 1))
            runner.start(row, endless, replace(sampling, seed=row), frames, is_open=True)
            speaking.add(row)
        steps += 1
        is_due = not steps % _STEPS_A_WINDOW
        result = runner.step(speaking, dict.fromkeys(sound, frames) if is_due else {})
        codes += [(frame.row, frame.code) for frame in result.frames]
        for part in result.sounds:
            sound[part.row] += part.pcm
        speaking -= {frame.row for frame in result.frames if frame.is_end}
    return codes, sound


def choices_against_cpu(
    source: ModelSource, device: torch.device, dtype: torch.dtype, frames: int
) -> dict[str, Any]:
    """Compare choices along a speech of `frames` frames that the device generates in float32.

    Args:
        source: a CustomVoice model.
        device: device that is judged.
        dtype: precision that is served there.
        frames: length of the speech.
    """

    def loaded(dtype: torch.dtype, device: torch.device) -> Checkpoint:
        kernels, _ = served_kernels(source, device, dtype)
        return source.checkpoint(dtype, device, "sdpa", kernels=kernels, is_packed=True)

    exact = loaded(torch.float32, device)
    exact_kernels = exact.network.kernels
    prompt, sampling = _prompt(exact, 0), sampling_params(exact.generation, seed=0)
    request = Request(prompt, sampling, frames)
    (codes,) = generate_codes(exact.network, [request], rows=1, capacity=len(prompt) + frames)
    penalty = sampling.repetition_penalty

    def along(checkpoint: Checkpoint) -> Choices:
        return choices_along(checkpoint.network, prompt, codes, penalty)

    on_device = along(exact)
    del exact
    on_cpu = along(loaded(torch.float32, torch.device("cpu")))
    served = loaded(dtype, device)
    return compare(on_device, on_cpu) | {
        "float32_kernels": exact_kernels,
        "served_kernels": served.network.kernels,
        "served_precision": str(dtype).removeprefix("torch."),
        "served_top_1_agreement": _agreement(along(served).codes, on_cpu.codes),
    }


def compare(on_device: Choices, on_cpu: Choices) -> dict[str, Any]:
    """Return the share of equal choices, and the margins of the others."""
    margins = on_cpu.margins[on_device.codes != on_cpu.codes].tolist()
    return {
        "choices": on_cpu.codes.numel(),
        "cpu_agreement": _agreement(on_device.codes, on_cpu.codes),
        "margins_of_differences": [round(margin, 6) for margin in sorted(margins)],
        "differences_are_near_ties": all(margin < _NEAR_TIE for margin in margins),
    }


def _agreement(codes: Tensor, expected: Tensor) -> float:
    return round(float((codes == expected).float().mean()), 5)


def _prompt(checkpoint: Checkpoint, number: int) -> Prompt:
    voice = Preset(next(iter(checkpoint.config.talker_config.spk_id)))
    text = agent_monologue(seed=number, words=_WORDS)
    return PromptBuilder(checkpoint.config, checkpoint.tokenizer).build(text, voice, _LANGUAGE)
