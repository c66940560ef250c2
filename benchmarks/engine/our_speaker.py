"""Our engine's rows as a child process that speaks on request, one row at a time."""

import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine.answering import answer_requests, peak_mb
from testbed.replay import choices_along
from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.engine.load import load_runner
from voiceagent_tts.engine.options import Precision, Qwen3Options
from voiceagent_tts.engine.runner import Runner, StepResult
from voiceagent_tts.model.checkpoint import Checkpoint, load_checkpoint
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.prompt import Preset, Prompt, PromptBuilder
from voiceagent_tts.model.sampling import sampling_params

_CAPACITY = 512
"""Positions of the row: forty seconds."""


class OurSpeaker:
    """Speaks with a CustomVoice model on our engine.

    Args:
        folder: folder of the checkpoint.
        precision: precision of talker and code predictor.
        layout: layout of the weights: `plain`, as stored, on a CPU; `packed`, as an engine uses
            them.
        speaker: name of the voice.
    """

    def __init__(self, folder: str, precision: Precision, layout: str, speaker: str) -> None:
        if layout == "packed":
            options = Qwen3Options(folder, "cpu", precision, rows=1, capacity=_CAPACITY)
            self._checkpoint, self._runner = load_runner(options)
        else:
            self._checkpoint, self._runner = _load_plain(Path(folder), getattr(torch, precision))
        self._builder = PromptBuilder(self._checkpoint.config, self._checkpoint.tokenizer)
        self._sampling = sampling_params(self._checkpoint.generation, seed=0)
        self._voice = Preset(speaker)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Speak, or return the choices along a speech."""
        return self._choices(**request) if "codes" in request else self._speak(**request)

    def _speak(self, text: str, language: str, frames: int) -> dict[str, Any]:
        """Generate the audio, frame by frame."""
        began = time.perf_counter()
        self._runner.start(0, self._prompt(text, language), self._sampling, frames, is_open=False)
        samples = self._until_sound()
        first_audio_s = time.perf_counter() - began
        made, is_speaking = 1, frames > 1
        while is_speaking:
            made += 1
            result = self._runner.step([0], {0: 1})
            samples += _samples(result)
            is_speaking = not any(frame.is_end for frame in result.frames)
        samples += self._rest()
        self._runner.cancel(0)
        return {
            "frames": samples // FRAME_SAMPLES,
            "first_audio_s": first_audio_s,
            "total_s": time.perf_counter() - began,
            "peak_mb": peak_mb(),
        }

    def _until_sound(self) -> int:
        """Make the first frame, and wait for its samples."""
        samples = _samples(self._runner.step([0], {0: 1}))
        while not samples:
            samples = _samples(self._runner.step([], {}))
        return samples

    def _rest(self) -> int:
        """Return the samples of the last frame, and of all that are still in flight."""
        samples = _samples(self._runner.step([], {0: 1}))
        while self._runner.has_sound_in_flight:
            samples += _samples(self._runner.step([], {}))
        return samples

    def _choices(
        self, text: str, language: str, frames: int, codes: list[list[int]]
    ) -> dict[str, Any]:
        """Return the network's choices along `codes`, or without them along its own speech."""
        network, prompt = self._checkpoint.network, self._prompt(text, language)
        spoken = torch.tensor(codes)
        if not codes:
            request = Request(prompt, self._sampling, frames)
            (spoken,) = generate_codes(network, [request], rows=1, capacity=_CAPACITY)
        along = choices_along(network, prompt, spoken, self._sampling.repetition_penalty)
        return {"codes": spoken.tolist(), "choices": along.codes.tolist()}

    def _prompt(self, text: str, language: str) -> Prompt:
        return self._builder.build(text, self._voice, language)


def _samples(result: StepResult) -> int:
    return sum(len(sound.pcm) // BYTES_PER_SAMPLE for sound in result.sounds)


def _load_plain(folder: Path, dtype: torch.dtype) -> tuple[Checkpoint, Runner]:
    checkpoint = load_checkpoint(folder, dtype, is_packed=False)
    codec = load_codec(folder, is_packed=False)
    return checkpoint, Runner(checkpoint, codec, rows=1, capacity=_CAPACITY)


if __name__ == "__main__":
    answer_requests(lambda: OurSpeaker(*sys.argv[1:]).answer)  # pyright: ignore
