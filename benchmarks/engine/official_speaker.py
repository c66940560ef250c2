"""The official package as a child process that speaks on request."""

import importlib
import sys
import time
from typing import Any

from benchmarks.engine.answering import Answer, answer_requests, peak_mb
from benchmarks.engine.peer_packages import stand_in

_FRAME_SAMPLES = 1920


def load_official(folder: str, precision: str, speaker: str) -> Answer:
    """Load the package and a CustomVoice model."""
    # before the stand-ins, because transformers checks which packages are installed
    importlib.import_module("transformers")
    stand_in()
    torch = importlib.import_module("torch")
    package = importlib.import_module("qwen_tts")
    model = package.Qwen3TTSModel.from_pretrained(
        folder, dtype=getattr(torch, precision), device_map="cpu"
    )

    def speak(request: dict[str, Any]) -> dict[str, Any]:
        """Generate the audio of a text; the official package returns all of it at the end."""
        began = time.perf_counter()
        (samples,), _ = model.generate_custom_voice(
            request["text"],
            speaker,
            request["language"],
            # The last token that it samples never becomes a frame.
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
