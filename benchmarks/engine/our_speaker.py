"""Our engine's rows, which speak on request in a process of their own, one row at a time."""

import time
from typing import Any

from benchmarks.engine.child import Answer
from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES
from voiceagent_tts.engine.load import load_runner
from voiceagent_tts.engine.options import Precision, Qwen3Options
from voiceagent_tts.engine.runner import StepResult
from voiceagent_tts.model.prompt import Preset, PromptBuilder
from voiceagent_tts.model.sampling import sampling_params

_CAPACITY = 512
"""Positions of the row: forty seconds."""


def load(folder: str, precision: Precision, speaker: str) -> Answer:
    """Load a CustomVoice model; it answers with what speaking took.

    Args:
        folder: folder of the checkpoint.
        precision: precision of talker and code predictor.
        speaker: name of the voice.
    """
    options = Qwen3Options(folder, "cpu", precision, rows=1, capacity=_CAPACITY)
    checkpoint, runner = load_runner(options)
    builder = PromptBuilder(checkpoint.config, checkpoint.tokenizer)
    sampling = sampling_params(checkpoint.generation, seed=0)

    def speak(request: dict[str, Any]) -> dict[str, Any]:
        """Generate the audio, frame by frame."""
        began, frames = time.perf_counter(), request["frames"]
        prompt = builder.build(request["text"], Preset(speaker), request["language"])
        runner.start(0, prompt, sampling, frames, is_open=False)
        samples = _samples(runner.step([0], {0: 1}))
        while not samples:
            samples = _samples(runner.step([], {}))
        first_audio_s = time.perf_counter() - began
        is_speaking = frames > 1
        while is_speaking:
            result = runner.step([0], {0: 1})
            samples += _samples(result)
            is_speaking = not any(frame.is_end for frame in result.frames)
        samples += _samples(runner.step([], {0: 1}))
        while runner.has_sound_in_flight:
            samples += _samples(runner.step([], {}))
        runner.cancel(0)
        total_s = time.perf_counter() - began
        made = samples // FRAME_SAMPLES
        return {"frames": made, "first_audio_s": first_audio_s, "total_s": total_s}

    return speak


def _samples(result: StepResult) -> int:
    return sum(len(sound.pcm) // BYTES_PER_SAMPLE for sound in result.sounds)
