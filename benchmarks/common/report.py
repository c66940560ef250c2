"""How results are told: percentiles, where they come from, and the JSON object at the end."""

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
    """`p50_ms`, `p95_ms` and `p99_ms` of values in that unit, interpolated between neighbours."""
    ranks = (50, 95, 99)
    figures = np.percentile(np.asarray(values, np.float64), ranks)
    return {
        f"p{rank}_{unit}": round(float(figure), digits)
        for rank, figure in zip(ranks, figures, strict=True)
    }


def provenance() -> dict[str, Any]:
    """What a published number must name: machine, commit, command, and how busy the machine was."""
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
    """The module that Python was told to run; a package's is `__main__`."""
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
    """The short hash of the code that ran, `-dirty` where files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        git = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return git.stdout.strip()
