"""One tenant beside another that attacks the server is measured."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def result_of(*options: str) -> dict[str, Any]:
    """Run the benchmark; return the JSON of its last line."""
    argv = [sys.executable, "-m", "benchmarks.tenants", *options]
    run = subprocess.run(
        argv, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.thorough
def test_a_victim_is_measured_beside_an_attacker() -> None:
    """The victim's turns are heard, and the JSON has the server's stall and memory."""
    options = ["--attacks", "short sentences", "--seconds", "1", "--settle-s", "0"]
    result = result_of(*options, "--no-replicas")
    figures = result["attacks"]["short sentences"]
    assert figures["turns"] >= 8 and figures["failed"] == 0
    assert figures["p95_ms"] > 0 and figures["longest_stall_ms"] > 0
    assert figures["alone_p95_ms"] > 0 and figures["rss_mb"]["kept_after"] > 0
    assert figures["rss_mb"]["most"] >= figures["rss_mb"]["kept_before"] > 0
    assert {"machine", "commit", "missed"} <= result.keys()


@pytest.mark.thorough
@pytest.mark.services
def test_an_attack_goes_through_the_proxy() -> None:
    """Two replicas behind HAProxy stay up, and the victim's turns are heard."""
    figures = result_of("--attacks", "idle sockets", "--seconds", "2", "--settle-s", "0")
    figures = figures["replicas"]["idle sockets"]
    assert figures["turns"] >= 8 and (figures["failed"], figures["replica_down"]) == (0, 0)
