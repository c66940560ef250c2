"""Report results: percentiles, their provenance, and a closing JSON object."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_REPOSITORY = Path(__file__).parents[2]


def percentiles(values: Sequence[float], *, unit: str = "ms", digits: int = 2) -> dict[str, float]:
    """Return p50, p95 and p99, keyed as `p50_ms`; linearly interpolated."""
    ranks = (50, 95, 99)
    figures = np.percentile(np.asarray(values, np.float64), ranks)
    return {
        f"p{rank}_{unit}": round(float(figure), digits)
        for rank, figure in zip(ranks, figures, strict=True)
    }


def provenance() -> dict[str, Any]:
    """Return what a published figure must state: machine, commit, command and system load."""
    return {
        "machine": _machine(),
        "commit": _commit(),
        "command": " ".join(["python -m", _program(), *sys.argv[1:]]),
        "load_1_min": round(os.getloadavg()[0], 2),
    }


def publish(result: dict[str, Any], path: Path | None = None) -> None:
    """Write `result` as the last line of standard output, and to `path`."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result), flush=True)


def _program() -> str:
    """Return the name of the module that Python runs, without a package's `.__main__`."""
    spec = sys.modules["__main__"].__spec__
    return "?" if spec is None else spec.name.removesuffix(".__main__")


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = platform.python_version()
    return f"{cores} x {_processor()}, {platform.system()} {platform.machine()}, Python {python}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def _commit() -> str:
    """Return the short hash of the running code, with `-dirty` if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        git = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return git.stdout.strip()
