"""`testbed.ending`: tests and fixtures that hang."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[1]
CONFTEST = """
import pytest
from testbed import ending
from tests.conftest import (
    pytest_runtest_call, pytest_runtest_teardown, pytest_timeout_set_timer
)

ending.PATIENCE_S = 0.5
"""
HANGING = """
import asyncio
import threading

import pytest
from hypothesis import given, settings, strategies


async def never():
    try:
        await asyncio.Event().wait()
    finally:
        print("cleaned up")


async def test_that_hangs():
    await never()


@settings(deadline=None, max_examples=1, database=None)
@given(strategies.none())
async def test_with_examples_that_hangs(_):
    await never()


@pytest.fixture
def one():
    yield
    try:
        threading.Event().wait()
    finally:
        print("one has ended")


@pytest.fixture
async def other():
    yield
    try:
        await asyncio.Event().wait()
    finally:
        print("other has ended")


def test_whose_fixtures_hang_after_its_failure(one, other):
    raise AssertionError


def test_that_hangs_twice():
    try:
        threading.Event().wait()
    finally:
        threading.Event().wait()


def test_after():
    pass
"""


def test_a_run_outlives_whatever_hangs(tmp_path: Path) -> None:
    """A hanging test fails and cleans up, each hanging fixture fails, and later tests run."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(HANGING)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\ntimeout = 5\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-W", "ignore"]
        + [str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines()[-1].startswith("4 failed, 1 passed, 1 error"), done.stdout
    for name in ("test_that_hangs", "test_with_examples_that_hangs"):
        _, _, report = done.stdout.partition(f"_ {name} _")
        assert "cleaned up" in report.partition("____ test_")[0], done.stdout
    assert "one has ended" in done.stdout and "other has ended" in done.stdout
