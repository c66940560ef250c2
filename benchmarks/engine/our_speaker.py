"""Our engine's rows, which speak on request in a process of their own, one row at a time."""

import time
from typing import Any

import torch

from benchmarks.engine.child import Answer
from testbed.replay import choices_along
from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.engine.load import load_runner
from voiceagent_tts.engine.options import Precision, Qwen3Options
from voiceagent_tts.engine.runner import StepResult
from voiceagent_tts.model.prompt import Preset, Prompt, PromptBuilder
from voiceagent_tts.model.sampling import sampling_params

_CAPACITY = 512
"""Positions of the row: forty seconds."""


def load(folder: str, precision: Precision, speaker: str) -> Answer:
    """Load a CustomVoice model; it answers with what speaking took, or its choices along codes.

    Args:
        folder: folder of the checkpoint.
        precision: precision of talker and code predictor.
        speaker: name of the voice.
    """
    ours = _OurSpeaker(folder, precision, speaker)
    return lambda request: ours.choices(**request) if "codes" in request else ours.speak(**request)


class _OurSpeaker:
    def __init__(self, folder: str, precision: Precision, speaker: str) -> None:
        options = Qwen3Options(folder, "cpu", precision, rows=1, capacity=_CAPACITY)
        self._checkpoint, self._runner = load_runner(options)
        self._builder = PromptBuilder(self._checkpoint.config, self._checkpoint.tokenizer)
        self._sampling = sampling_params(self._checkpoint.generation, seed=0)
        self._voice = Preset(speaker)

    def speak(self, text: str, language: str, frames: int) -> dict[str, Any]:
        """Generate the audio, frame by frame."""
        began = time.perf_counter()
        self._runner.start(0, self._prompt(text, language), self._sampling, frames, is_open=False)
        samples = _samples(self._runner.step([0], {0: 1}))
        while not samples:
            samples = _samples(self._runner.step([], {}))
        first_audio_s = time.perf_counter() - began
        is_speaking = frames > 1
        while is_speaking:
            result = self._runner.step([0], {0: 1})
            samples += _samples(result)
            is_speaking = not any(frame.is_end for frame in result.frames)
        samples += _samples(self._runner.step([], {0: 1}))
        while self._runner.has_sound_in_flight:
            samples += _samples(self._runner.step([], {}))
        self._runner.cancel(0)
        total_s = time.perf_counter() - began
        made = samples // FRAME_SAMPLES
        return {"frames": made, "first_audio_s": first_audio_s, "total_s": total_s}

    def choices(
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
