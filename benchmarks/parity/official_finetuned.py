"""Speaks texts with a fine-tuned checkpoint in the official package; `finetuned` starts it.

python -m benchmarks.parity.official_finetuned MODEL SPEAKER < texts.json > codes.json
"""

import importlib
import json
import sys
from typing import Any

from benchmarks.engine.peer_packages import UNUSED, stand_in

_MAX_FRAMES = 100


def main() -> None:
    """Read a list of texts; write the codes of each, greedily chosen."""
    folder, speaker = sys.argv[1:]
    importlib.import_module("transformers")  # it checks which packages are installed
    stand_in(name for name in UNUSED if not name.startswith("librosa"))
    torch = importlib.import_module("torch")
    package = importlib.import_module("qwen_tts")
    model = package.Qwen3TTSModel.from_pretrained(folder, dtype=torch.float32, device_map="cpu")
    codes = [_codes(model, text, speaker) for text in json.load(sys.stdin)]
    sys.stdout.write(json.dumps(codes))


def _codes(model: Any, text: str, speaker: str) -> list[list[int]]:
    """Return the codes that the model hands to its codec: [F, K]."""
    spoken: list[Any] = []
    generate = model.model.generate

    def recorded(*arguments: Any, **options: Any) -> Any:
        spoken.append(generate(*arguments, **options))
        return spoken[-1]

    model.model.generate = recorded
    try:
        model.generate_custom_voice(
            text,
            speaker,
            None,
            non_streaming_mode=True,
            do_sample=False,
            subtalker_dosample=False,
            repetition_penalty=1.0,
            max_new_tokens=_MAX_FRAMES,
        )
    finally:
        model.model.generate = generate
    return spoken[-1][0][0].tolist()


if __name__ == "__main__":
    main()
