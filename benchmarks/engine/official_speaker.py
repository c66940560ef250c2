"""The official package, which speaks on request in a process of its own.

It needs a version of transformers that this project cannot use. A folder that comes first on the
process's path keeps it apart, while both sides share one Python and one torch. Packages that it
imports at start and uses only for other tasks (another codec, cloning, a demo) are not installed:
modules without anything stand in for them.
"""

import importlib
import subprocess
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.engine.child import Answer

_REQUIREMENTS = (
    "qwen-tts==0.1.1", "transformers==4.57.3", "tokenizers==0.22.2", "huggingface-hub==0.36.0",
    "accelerate==1.12.0", "requests==2.34.2", "urllib3==2.8.0", "charset-normalizer==3.5.2",
    "idna==3.20", "certifi==2026.10.18",
)  # fmt: skip
"""Exact versions, except of torch and the packages of this project's extras."""
_UNUSED = (
    "einops", "librosa", "librosa.filters", "onnxruntime", "sox", "torchaudio",
    "torchaudio.compliance", "torchaudio.compliance.kaldi",
)  # fmt: skip
_FRAME_SAMPLES = 1920


def package_folder(parent: Path) -> Path:
    """Return the folder of the packages, in `parent`; install them if it does not exist.

    Raises:
        subprocess.CalledProcessError: a package could not be installed.
    """
    folder = parent / "official"
    if not folder.exists():
        partial = parent / "official.partial"
        target = ["--no-deps", "--upgrade", "--target", str(partial)]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", *target, *_REQUIREMENTS],
            check=True,
            stdout=sys.stderr,  # standard output is reserved for figures
        )
        partial.rename(folder)
    return folder.absolute()


class _StandIn(ModuleType):
    """A module that has every attribute; calling one is an error."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def _stand_in() -> None:
    """Make the unused modules importable; parents come before their children."""
    for name in _UNUSED:
        module = _StandIn(name)
        module.__spec__, module.__path__ = ModuleSpec(name, None), []
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)


def load(packages: str, folder: str, speaker: str) -> Answer:
    """Load the package of a folder and a model in float32; it answers with what speaking took."""
    sys.path.insert(0, packages)
    # before the stand-ins, because transformers checks which packages are installed
    importlib.import_module("transformers")
    _stand_in()
    torch = importlib.import_module("torch")
    package = importlib.import_module("qwen_tts")
    model = package.Qwen3TTSModel.from_pretrained(folder, dtype=torch.float32, device_map="cpu")

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
        frames = len(samples) // _FRAME_SAMPLES
        return {"frames": frames, "first_audio_s": total_s, "total_s": total_s}

    return speak
