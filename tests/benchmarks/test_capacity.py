"""The capacity simulator: plain cases that can be worked out by hand, and its closing line."""

import json
import sys

import pytest

from benchmarks.service import capacity
from benchmarks.service.capacity import Calls, Fleet, fewest_replicas

HABITS = Calls(5.0, 5.0)


def test_a_row_for_every_call_refuses_nothing() -> None:
    """The mean number of streams is the share of the calls that speak."""
    found = Fleet(4, 25, 100, HABITS, seed=1).run(300)
    assert found.refused == 0
    assert found.busiest <= 1
    assert found.streams == pytest.approx(50, rel=0.1)


def test_half_of_the_rows_refuse_many_and_never_more_are_used() -> None:
    """A fleet that is too small is full, and speaks no more than it has rows."""
    found = Fleet(2, 10, 100, HABITS, seed=1).run(300)
    assert found.busiest == 1
    assert found.refused_share > 0.3
    assert found.streams < 20.5


def test_calls_of_a_dead_replica_go_to_the_others() -> None:
    """With rows to spare nobody notices a death; without them turns are refused."""
    assert Fleet(3, 100, 150, HABITS, seed=1).run(120).refused_after_kill == 0
    assert Fleet(2, 45, 150, HABITS, seed=1).run(120).refused_after_kill > 0.2


def test_the_fewest_replicas_keep_the_limit() -> None:
    """One replica less refuses more than the limit; the search is reproducible."""
    replicas, found = fewest_replicas(60, 16, HABITS, 0.001, 120, seed=3)
    assert found.refused_share <= 0.001
    assert Fleet(replicas - 1, 16, 120, HABITS, 3).run(120).refused_share > 0.001
    assert fewest_replicas(60, 16, HABITS, 0.001, 120, seed=3) == (replicas, found)


def test_the_last_line_is_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program prints a line for each number of streams, and one object."""
    argv = ["capacity", "--rows", "8", "--streams", "10,20", "--seconds", "60"]
    monkeypatch.setattr(sys, "argv", argv)
    capacity.main()
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert [fleet["asked"] for fleet in json.loads(last)["fleets"]] == [10, 20]
