"""The official package, in a separate folder with the dependencies that it needs.

It needs a version of transformers that this project cannot use. A folder that comes first on a
child's `PYTHONPATH` keeps it apart, while both sides share one Python and one torch. Packages that
it imports at start and uses only for other tasks (another codec, cloning, a demo) are not
installed: `stand_in` replaces them.

Uses the standard library only, because child processes run it, too.
"""

import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_FOLDER = "official"
_REQUIREMENTS = (
    "qwen-tts==0.1.1",
    "transformers==4.57.3",
    "tokenizers==0.22.2",
    "huggingface-hub==0.36.0",
    "accelerate==1.12.0",
    "requests==2.34.2",
    "urllib3==2.8.0",
    "charset-normalizer==3.5.2",
    "idna==3.20",
    "certifi==2026.10.18",
)
"""Exact versions, except of torch and the packages of this project's extras."""

UNUSED = (
    "einops",
    "librosa",
    "librosa.filters",
    "onnxruntime",
    "sox",
    "torchaudio",
    "torchaudio.compliance",
    "torchaudio.compliance.kaldi",
)


def package_folder(parent: Path) -> Path:
    """Return the folder of the packages, in `parent`; install them if it does not exist.

    Raises:
        subprocess.CalledProcessError: a package could not be installed.
    """
    folder = parent / _FOLDER
    if not folder.exists():
        partial = parent / f"{_FOLDER}.partial"
        target = ["--no-deps", "--upgrade", "--target", str(partial)]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", *target, *_REQUIREMENTS],
            check=True,
            stdout=sys.stderr,  # standard output is reserved for figures
        )
        partial.rename(folder)
    return folder.absolute()


def ahead_of_others(folder: Path) -> dict[str, str]:
    """Return the environment of a child in which a folder of packages comes first."""
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    }


class _StandIn(ModuleType):
    """A module that has every attribute; calling one is an error."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def stand_in() -> None:
    """Make the unused modules importable; parents come before their children."""
    for name in UNUSED:
        module = _StandIn(name)
        module.__spec__, module.__path__ = ModuleSpec(name, None), []
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
