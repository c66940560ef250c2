"""One tenant beside another that attacks the server is measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.thorough
def test_a_victim_is_measured_beside_an_attacker() -> None:
    """The victim's turns are heard, and the JSON has the server's stall and memory."""
    options = ["--attacks", "short sentences", "--seconds", "1", "--settle-s", "0"]
    argv = [sys.executable, "-m", "benchmarks.tenants", *options]
    run = subprocess.run(
        argv, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True, check=True
    )
    result = json.loads(run.stdout.splitlines()[-1])
    figures = result["attacks"]["short sentences"]
    assert figures["turns"] >= 8 and figures["failed"] == 0
    assert figures["p95_ms"] > 0 and figures["longest_stall_ms"] > 0
    assert figures["rss_mb"]["most"] >= figures["rss_mb"]["before"] > 0
    assert {"machine", "commit"} <= result.keys()
