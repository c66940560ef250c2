"""Which worker process runs which test, so that sound plays on time while other tests compute.

Tests that play on the wall clock need little of a processor, but at once. The first workers have a
lower priority and prefer tests that compute; the others prefer tests that play.
"""

import os

import pytest

_COMPUTING_WORKERS = 2
_NICENESS = 10
GROUP = "realtime"
"""The `xdist_group` of tests that play on the wall clock."""
_FIXTURES = frozenset(
    {"served", "server", "shared_server", "start_server", "start_process", "start_synthesizer"}
)
"""Fixtures that start a server, whose tests play on the wall clock."""


def lower_priority() -> None:
    """Lower the priority of this process if it is a worker for tests that compute."""
    if computes(os.environ.get("PYTEST_XDIST_WORKER", "")):
        os.nice(_NICENESS)


def mark_realtime(items: list[pytest.Item]) -> None:
    """Put every test of a file that has a real-time test into the group of those."""
    files = {item.path for item in items if _is_realtime(item)}
    for item in items:
        if item.path in files:
            item.add_marker(pytest.mark.xdist_group(GROUP))


def _is_realtime(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    return item.get_closest_marker("realtime") is not None or not _FIXTURES.isdisjoint(fixtures)


def computes(worker: str) -> bool:
    """Return whether a worker prefers tests that compute."""
    number = worker.removeprefix("gw")
    return number.isdigit() and int(number) < _COMPUTING_WORKERS
