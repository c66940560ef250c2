"""Our engine's rows as a child process that speaks when asked: one row, a frame at a time."""

import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.answering import answer_requests, peak_mb
from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.model.checkpoint import load_checkpoint
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.forced import choices_along
from voiceagent_tts.model.generate import Request, generate_codes
from voiceagent_tts.model.prompt import Preset, Prompt, PromptBuilder
from voiceagent_tts.model.sampling import sampling_params

_CAPACITY = 512
"""Positions of the row: forty seconds."""


class OurSpeaker:
    """A CustomVoice model of ours.

    Args:
        folder: of the checkpoint.
        precision: of talker and code predictor.
        layout: of the weights, `plain` or `packed`.
        speaker: name of the voice.
    """

    def __init__(self, folder: str, precision: str, layout: str, speaker: str) -> None:
        is_packed = layout == "packed"
        dtype = getattr(torch, precision)
        self._checkpoint = load_checkpoint(Path(folder), dtype, is_packed=is_packed)
        codec = load_codec(Path(folder), is_packed=is_packed)
        self._runner = Runner(self._checkpoint, codec, rows=1, capacity=_CAPACITY)
        self._builder = PromptBuilder(self._checkpoint.config, self._checkpoint.tokenizer)
        self._sampling = sampling_params(self._checkpoint.generation, seed=0)
        self._voice = Preset(speaker)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Speak, or tell the choices along a speech."""
        return self._choices(**request) if "codes" in request else self._speak(**request)

    def _speak(self, text: str, language: str, frames: int) -> dict[str, Any]:
        """Its sound comes frame by frame."""
        began = time.perf_counter()
        samples, first_audio_s = 0, 0.0
        self._runner.start(0, self._prompt(text, language), self._sampling, frames, is_open=False)
        while made := self._runner.step([0]):
            first_audio_s = first_audio_s or time.perf_counter() - began
            samples += len(made[0].pcm) // 2
        return {
            "frames": samples // FRAME_SAMPLES,
            "first_audio_s": first_audio_s,
            "total_s": time.perf_counter() - began,
            "peak_mb": peak_mb(),
        }

    def _choices(
        self, text: str, language: str, frames: int, codes: list[list[int]]
    ) -> dict[str, Any]:
        """What it would choose along `codes`, or, where there are none, along its own speech."""
        network, prompt = self._checkpoint.network, self._prompt(text, language)
        spoken = torch.tensor(codes)
        if not codes:
            request = Request(prompt, self._sampling, frames)
            (spoken,) = generate_codes(network, [request], rows=1, capacity=_CAPACITY)
        along = choices_along(network, prompt, spoken, self._sampling.repetition_penalty)
        return {"codes": spoken.tolist(), "choices": along.codes.tolist()}

    def _prompt(self, text: str, language: str) -> Prompt:
        return self._builder.build(text, self._voice, language)


if __name__ == "__main__":
    answer_requests(lambda: OurSpeaker(*sys.argv[1:]).answer)
