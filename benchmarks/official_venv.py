"""The official package in a virtual environment of its own.

It needs transformers 4, which this project cannot live with. What it needs for the 25 Hz codec or
its demo alone is not installed; `benchmarks.official_speaker` stands in for it.
"""

import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

_PACKAGE = "qwen-tts==0.1.1"
_NEEDS = ("transformers==4.57.3", "librosa", "soundfile", "einops")


def official_python(folder: Path) -> Path:
    """The interpreter of the virtual environment `folder`, which is made where it is not there.

    It gets our version of torch: what differs is the package, not what it stands on.

    Raises:
        subprocess.CalledProcessError: a package could not be installed.
    """
    scripts, suffix = ("Scripts", ".exe") if sys.platform == "win32" else ("bin", "")
    python = folder / scripts / f"python{suffix}"
    if not python.exists():
        venv.create(folder, with_pip=True)
    if not _has_package(python):
        torch = f"torch=={version('torch').partition('+')[0]}"
        _pip_install(python, torch, *_NEEDS)
        _pip_install(python, "--no-deps", _PACKAGE)
    return python.absolute()


def _has_package(python: Path) -> bool:
    code = "import importlib.metadata as m; m.version('qwen-tts')"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def _pip_install(python: Path, *arguments: str) -> None:
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", *arguments],
        check=True,
        stdout=sys.stderr,  # standard output is for figures
    )
