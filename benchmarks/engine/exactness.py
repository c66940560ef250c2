"""Does a device compute what it should: as its own plain passes do, and as a CPU does?

- Graphs: rows that start one after the other, once by captured graphs and once by the same passes
  one launch at a time, in the same sizes. Codes and samples are to be the same bits.
- Choices: along one speech, the most likely code at every place, in float32 on the device and on a
  CPU. Two correct implementations differ where two codes are nearly as likely: each difference is
  told with its margin, by which the CPU's first code was ahead of its second.
- Precision: the same between float32 and the precision that is served.

Knows no engine and no clock.
"""

from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from testbed.agent_text import agent_monologue
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.engine.replay import Choices, choices_along
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import graph_sizes
from voiceagent_tts.model.checkpoint import Checkpoint, load_checkpoint
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.prompt import Preset, Prompt, PromptBuilder
from voiceagent_tts.model.sampling import SamplingParams, sampling_params

_LANGUAGE = "english"
_WORDS = 12
_CAPACITY = 256
_NEAR_TIE = 1e-3
_STEPS_A_WINDOW = 5

Spoken = tuple[list[tuple[int, int]], dict[int, bytes]]
"""(row, code) of every frame as it came, and each row's samples."""


def graphs_against_plain(
    folder: Path, device: str, dtype: torch.dtype, rows: int, frames: int
) -> dict[str, Any]:
    """Let `rows` rows of a CustomVoice model speak `frames` frames each, both ways."""
    checkpoint = load_checkpoint(folder, dtype, device)
    codec = load_codec(folder, device=device)
    sampling = sampling_params(checkpoint.generation, seed=0)
    sizes, prompts = graph_sizes(rows, _CAPACITY), [_prompt(checkpoint, row) for row in range(rows)]

    def speak(*, has_graphs: bool) -> Spoken:
        runner = Runner(checkpoint, codec, rows, _CAPACITY, sizes=sizes, has_graphs=has_graphs)
        runner.capture(lambda done, total: None)
        return _speak(runner, prompts, sampling, frames)

    (codes, sound), (plain_codes, plain_sound) = speak(has_graphs=True), speak(has_graphs=False)
    same_codes = sum(one == other for one, other in zip(codes, plain_codes, strict=True))
    same_sound = sum(sound[row] == plain_sound[row] for row in range(rows))
    return {
        "graph_frames": len(codes),
        "graph_codes_equal": round(same_codes / len(codes), 5),
        "graph_rows": rows,
        "graph_rows_with_equal_sound": same_sound,
    }


def _speak(runner: Runner, prompts: list[Prompt], sampling: SamplingParams, frames: int) -> Spoken:
    """Start a row in every step; the codec decodes several frames of all rows now and then."""
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
    folder: Path, device: str, dtype: torch.dtype, frames: int
) -> dict[str, Any]:
    """Compare choices along a speech of `frames` frames that the device has made in float32.

    Args:
        folder: of a CustomVoice model.
        device: that is judged.
        dtype: that is served there.
        frames: of the speech.
    """
    exact = load_checkpoint(folder, torch.float32, device)
    prompt, sampling = _prompt(exact, 0), sampling_params(exact.generation, seed=0)
    request = Request(prompt, sampling, frames)
    (codes,) = generate_codes(exact.network, [request], rows=1, capacity=len(prompt) + frames)
    penalty = sampling.repetition_penalty

    def along(checkpoint: Checkpoint) -> Choices:
        return choices_along(checkpoint.network, prompt, codes, penalty)

    on_device = along(exact)
    del exact
    on_cpu = along(load_checkpoint(folder, torch.float32))
    served = along(load_checkpoint(folder, dtype, device))
    return compare(on_device, on_cpu) | {
        "served_precision": str(dtype).removeprefix("torch."),
        "served_top_1_agreement": _agreement(served.codes, on_cpu.codes),
    }


def compare(on_device: Choices, on_cpu: Choices) -> dict[str, Any]:
    """The share of equal choices, and by how little the others differ."""
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
