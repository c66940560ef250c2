"""A cancel beside contexts that wait to be opened is measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.service.cancel_beside import figures, missed
from testbed.missing import require_program


@pytest.mark.thorough
@pytest.mark.services
def test_a_cancel_is_measured_beside_each_obstacle() -> None:
    """Every obstacle has its percentiles, and the JSON its origin."""
    require_program("redis-server")
    argv = [sys.executable, "-m", "benchmarks.service.cancel_beside", "--count", "2"]
    root = Path(__file__).parents[2]
    run = subprocess.run(argv, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(run.stdout.splitlines()[-1])
    assert list(result["cancels"]) == ["nothing", "lexicon", "redis", "worker"]
    assert all(figures["p99_ms"] > 0 for figures in result["cancels"].values())
    assert {"count", "missed", "machine", "commit"} <= result.keys()


def test_slow_cancels_are_named() -> None:
    """From the 99th percentile on: one of a thousand may be late, and no more than one of fifty."""
    quick = [5.0] * 1000
    cancels = {
        "nothing": figures(quick),
        "lexicon": figures([*quick[1:], 900.0]),
        "redis": figures(quick[:98] + [31.0, 31.0]),
        "worker": figures([29.9] * 100),
    }
    assert missed(cancels) == ["redis"]
