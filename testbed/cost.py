"""Record what tests and fixtures take in pytest's JUnit report, for `scripts/test-times`."""

import contextlib
import resource
import time
from collections.abc import Iterator

import pytest

LEAST_S = 0.1
"""Fixtures that take less are not recorded."""


@contextlib.contextmanager
def cpu_recorded(item: pytest.Item) -> Iterator[None]:
    """Record the processor time of a test within the block, and of processes that end in it."""
    start_s = _cpu_s()
    try:
        yield
    finally:
        item.user_properties.append(("cpu_s", round(_cpu_s() - start_s, 3)))


@contextlib.contextmanager
def fixture_recorded(item: pytest.Item, name: str) -> Iterator[None]:
    """Record the time that a fixture takes to be set up within the block, if it is long."""
    start_s = time.monotonic()
    try:
        yield
    finally:
        took_s = time.monotonic() - start_s
        if took_s >= LEAST_S:
            item.user_properties.append((f"fixture {name}", round(took_s, 3)))


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
