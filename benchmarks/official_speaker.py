"""The official package as a child process that speaks when asked; runs in its own environment."""

import importlib
import sys
import time
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from typing import Any

from benchmarks.answering import Answer, answer_requests, peak_mb

_FRAME_SAMPLES = 1920
_UNUSED = (
    "onnxruntime",
    "sox",
    "torchaudio",
    "torchaudio.compliance",
    "torchaudio.compliance.kaldi",
)
"""Imported by the package at its start, and called only for its 25 Hz codec."""


def load_official(folder: str, precision: str, speaker: str) -> Answer:
    """Load the package and a CustomVoice model."""
    for name in _UNUSED:
        sys.modules[name] = module_from_spec(ModuleSpec(name, None))
    torch = importlib.import_module("torch")
    package = importlib.import_module("qwen_tts")
    model = package.Qwen3TTSModel.from_pretrained(folder, dtype=getattr(torch, precision))

    def speak(request: dict[str, Any]) -> dict[str, Any]:
        """Its sound comes when all of it is made."""
        began = time.perf_counter()
        (samples,), _ = model.generate_custom_voice(
            request["text"],
            speaker,
            request["language"],
            # The last token that it samples is never expanded into a frame.
            max_new_tokens=request["frames"] + 1,
        )
        total_s = time.perf_counter() - began
        return {
            "frames": len(samples) // _FRAME_SAMPLES,
            "first_audio_s": total_s,
            "total_s": total_s,
            "peak_mb": peak_mb(),
        }

    return speak


if __name__ == "__main__":
    answer_requests(lambda: load_official(*sys.argv[1:]))
