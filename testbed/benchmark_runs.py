"""Run a benchmark as a program."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def result_of(module: str, *argv: str) -> dict[str, Any]:
    """Return the JSON object of the last line of `python -m module *argv`, which ends with 0."""
    run = subprocess.run(
        [sys.executable, "-m", module, *argv],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(run.stdout.splitlines()[-1])
