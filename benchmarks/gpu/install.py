"""Packages that a GPU machine lacks, installed from a folder of wheels. Standard library only."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.plan import PLANS

_PARTS = ("engine", "server")


def install_missing(wheels: Path, folder: Path) -> dict[str, str]:
    """Install what is missing, where there are wheels, beside what the machine has.

    What is installed can be imported by this process, too.

    Args:
        wheels: folder that `benchmarks.gpu.wheels` fills; it may not exist.
        folder: folder for the packages.

    Returns:
        Variables for the environment of a process that uses them.
    """
    parts = [part for part in _PARTS if (wheels / part).is_dir()]
    wanted = {module for plan in PLANS.values() for module in plan.modules}
    if not parts or all(importlib.util.find_spec(module) for module in wanted):
        return {}
    target = folder / "-".join(("site", *parts))
    if not target.exists():
        files = [str(file) for part in parts for file in sorted((wheels / part).glob("*.whl"))]
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
        partial = folder / "site.partial"
        subprocess.run([*pip, "--upgrade", "--target", str(partial), *files], check=True)
        partial.rename(target)
    sys.path.append(str(target))
    importlib.invalidate_caches()
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(target))))
    return {"PYTHONPATH": path}
