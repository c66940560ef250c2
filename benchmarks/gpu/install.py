"""Packages that a GPU machine lacks, installed from a folder of wheels. Standard library only."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.plan import SECTIONS


def install_missing(wheels: Path, folder: Path) -> dict[str, str]:
    """Install what is missing, where there are wheels, beside what the machine has.

    What is installed can be imported by this process, too. A wheel that pip refuses, for another
    Python say, is named on standard error and left out: sections that need it are skipped.

    Args:
        wheels: folder that `benchmarks.gpu.wheels` fills; it may not exist.
        folder: folder for the packages.

    Returns:
        Variables for the environment of a process that uses them.
    """
    files = sorted(map(str, wheels.glob("*.whl")))
    wanted = {module for section in SECTIONS.values() for module in section.modules}
    if not files or all(importlib.util.find_spec(module) for module in wanted):
        return {}
    target = folder / "site"
    if not target.exists():
        partial = folder / "site.partial"
        # Together is fast; where pip refuses one wheel, it installs none of them.
        if not _install(files, partial):
            for file in files:
                if not _install([file], partial):
                    print(f"not installed: {file}", file=sys.stderr)
        partial.rename(target)
    sys.path.append(str(target))
    importlib.invalidate_caches()
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(target))))
    return {"PYTHONPATH": path}


def _install(files: Sequence[str], target: Path) -> bool:
    """Install wheels without their requirements; returns False where pip refuses one."""
    target.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    return subprocess.run([*pip, "--upgrade", "--target", str(target), *files]).returncode == 0
