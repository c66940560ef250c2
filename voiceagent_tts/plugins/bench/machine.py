"""Where and how a run was made: machine, versions, commit, command, load."""

import os
import platform
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from voiceagent_tts import __version__

_SECRET = re.compile(r'("[^"]*(?:key|token|secret)[^"]*"\s*:\s*")[^"]*', re.IGNORECASE)
"""A key in the arguments of a target."""
_PACKAGES = ("websockets", "aiohttp", "pipecat-ai", "livekit-agents", "numpy")


def provenance(command: str | None = None) -> dict[str, Any]:
    """What a published figure must state.

    Args:
        command: the command that was run; None for that of this process.
    """
    return {
        "machine": machine(),
        "versions": _versions(),
        "commit": commit(),
        "command": command
        or shlex.join(
            ["voiceagent-tts", *(_SECRET.sub(r"\1...", argument) for argument in sys.argv[1:])]
        ),
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_1_min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def machine() -> str:
    """Cores, processor, system and Python."""
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


def _versions() -> dict[str, str]:
    found = {"voiceagent-tts": __version__}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """Short hash of the running code, with `-dirty` if files differ; `unknown` outside a clone."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    folder = Path(__file__).parent
    try:
        git = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return git.stdout.strip()
