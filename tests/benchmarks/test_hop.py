"""The hop of a message from the engine's process to the server's."""

import json
import subprocess
import sys
from pathlib import Path


def test_the_hop_is_dearer_than_a_call():
    """A frame that goes to another process and back takes longer than a call; JSON says so."""
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.service.hop", "--count", "20"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(run.stdout.splitlines()[-1])
    assert result["zmq_us"] > result["in_process_us"] > 0
    assert {"count", "machine", "commit"} <= result.keys()
