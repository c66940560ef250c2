"""faster-qwen3-tts as a child process that speaks on request."""

import importlib
import sys
import time
from typing import Any

from benchmarks.engine.answering import Answer, answer_requests, peak_mb
from benchmarks.engine.peer_packages import stand_in

_FRAME_SAMPLES = 1920


def load_faster(folder: str, precision: str, speaker: str, device: str) -> Answer:
    """Load the package and a CustomVoice model, and capture its graphs.

    Raises:
        ValueError: there is no CUDA device, which its graphs need.
    """
    # before the stand-ins, because transformers checks which packages are installed
    importlib.import_module("transformers")
    stand_in()
    package = importlib.import_module("faster_qwen3_tts")
    model = package.FasterQwen3TTS.from_pretrained(folder, device=device, dtype=precision)
    model.warmup()

    def speak(request: dict[str, Any]) -> dict[str, Any]:
        """Generate the audio in chunks of `chunk_frames`."""
        began = time.perf_counter()
        samples, first_audio_s = 0, 0.0
        for chunk, _, _ in model.generate_custom_voice_streaming(
            request["text"],
            speaker,
            request["language"],
            max_new_tokens=request["frames"],
            chunk_size=request["chunk_frames"],
        ):
            first_audio_s = first_audio_s or time.perf_counter() - began
            samples += len(chunk)
        return {
            "frames": round(samples / _FRAME_SAMPLES),
            "first_audio_s": first_audio_s,
            "total_s": time.perf_counter() - began,
            "peak_mb": peak_mb(),
        }

    return speak


if __name__ == "__main__":
    answer_requests(lambda: load_faster(*sys.argv[1:]))
