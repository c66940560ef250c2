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
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True, slots=True)
class Peer:
    """A package and its requirements, except torch and the packages of this project's extras.

    Attributes:
        name: name of its folder.
        requirements: exact versions; nothing else is installed.
    """

    name: str
    requirements: tuple[str, ...]


_REQUESTS = (
    "requests==2.34.2",
    "urllib3==2.8.0",
    "charset-normalizer==3.5.2",
    "idna==3.20",
    "certifi==2026.10.18",
)
OFFICIAL = Peer(
    "official",
    (
        "qwen-tts==0.1.1",
        "transformers==4.57.3",
        "tokenizers==0.22.2",
        "huggingface-hub==0.36.0",
        "accelerate==1.12.0",
        *_REQUESTS,
    ),
)

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


def package_folder(peer: Peer, parent: Path) -> Path:
    """Return the folder `parent/name` with a peer's packages; install them if it does not exist.

    Args:
        peer: what to install.
        parent: parent of the folder.

    Raises:
        subprocess.CalledProcessError: a package could not be installed.
    """
    folder = parent / peer.name
    if not folder.exists():
        partial = parent / f"{peer.name}.partial"
        target = ["--no-deps", "--upgrade", "--target", str(partial)]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", *target, *peer.requirements],
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


def stand_in(names: Iterable[str] = UNUSED) -> None:
    """Make modules importable that are never called; parents come before their children."""
    for name in names:
        module = _StandIn(name)
        module.__spec__, module.__path__ = ModuleSpec(name, None), []
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
