"""One tenant beside another that attacks the server is measured."""

import pytest

from testbed.benchmark_runs import result_of


@pytest.mark.thorough
def test_a_victim_is_measured_beside_an_attacker() -> None:
    """The victim's turns are heard, and the JSON has the server's stall and memory."""
    argv = ["--attacks", "short sentences", "--seconds", "1", "--settle-s", "0"]
    result = result_of("benchmarks.tenants", *argv)
    figures = result["attacks"]["short sentences"]
    assert figures["turns"] >= 8 and figures["failed"] == 0
    assert figures["p95_ms"] > 0 and figures["longest_stall_ms"] > 0
    assert figures["rss_mb"]["most"] >= figures["rss_mb"]["before"] > 0
    assert {"machine", "commit"} <= result.keys()
