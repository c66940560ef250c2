"""Report results: their provenance, and a closing JSON object."""

import json
import sys
from pathlib import Path
from typing import Any

from voiceagent_tts.plugins.bench import machine


def provenance() -> dict[str, Any]:
    """Return what a published figure must state: machine, versions, commit, command and load."""
    spec = sys.modules["__main__"].__spec__
    program = "?" if spec is None else spec.name.removesuffix(".__main__")
    return machine.provenance(" ".join(["python -m", program, *sys.argv[1:]]))


def publish(result: dict[str, Any], path: Path | None = None) -> None:
    """Write `result` as the last line of standard output, and to `path`."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result), flush=True)
