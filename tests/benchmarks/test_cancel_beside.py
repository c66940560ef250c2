"""A cancel beside contexts that wait to be opened is measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.thorough
def test_a_cancel_is_measured_beside_each_obstacle(free_port: int) -> None:
    """Every obstacle has its percentiles, and the JSON its origin."""
    argv = ["--count", "1", "--redis-port", str(free_port)]
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.service.cancel_beside", *argv],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(run.stdout.splitlines()[-1])
    assert list(result["cancels"]) == ["nothing", "lexicon", "redis", "worker"]
    assert all(figures["max_ms"] > 0 for figures in result["cancels"].values())
    assert {"count", "machine", "commit"} <= result.keys()
