"""A cancel beside contexts that wait to be opened is measured."""

import pytest

from testbed.benchmark_runs import result_of


@pytest.mark.thorough
def test_a_cancel_is_measured_beside_each_obstacle(free_port: int) -> None:
    """Every obstacle has its percentiles, and the JSON its origin."""
    argv = ["--count", "1", "--redis-port", str(free_port)]
    result = result_of("benchmarks.service.cancel_beside", *argv)
    assert list(result["cancels"]) == ["nothing", "lexicon", "redis", "worker"]
    assert all(figures["max_ms"] > 0 for figures in result["cancels"].values())
    assert {"count", "machine", "commit"} <= result.keys()
