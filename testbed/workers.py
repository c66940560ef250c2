"""Assign tests to worker processes, so that audio plays on time while other tests compute.

Real-time tests need little processor time, but without delay. The first workers have a lower
priority and prefer tests that compute; the others prefer real-time tests.
"""

import os

import pytest

_COMPUTING_WORKERS = 2
_NICENESS = 5
GROUP = "realtime"
"""The `xdist_group` of real-time tests."""
_FIXTURES = frozenset(
    {"served", "server", "shared_server", "start_server", "start_process", "start_synthesizer"}
)
"""Fixtures that start a server; tests that use them are real-time tests."""


def lower_priority() -> None:
    """Lower the priority of this process if it is a worker for tests that compute."""
    if computes(os.environ.get("PYTEST_XDIST_WORKER", "")):
        os.nice(_NICENESS)


def mark_realtime(items: list[pytest.Item]) -> None:
    """Put every test of a file with a real-time test into the real-time group."""
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
