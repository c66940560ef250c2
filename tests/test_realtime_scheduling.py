"""The order in which workers get tests, and what happens when a worker dies."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("xdist")

ROOT = Path(__file__).parents[1]
CONFTEST = """
import pytest
from testbed.realtime_scheduling import RealtimeScheduling
from testbed.workers import mark_realtime

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    mark_realtime(items)

def pytest_xdist_make_scheduler(config, log):
    return RealtimeScheduling(config, log)
"""
CRASH = """
import os

def test_before():
    pass

def test_that_crashes():
    os._exit(1)

def test_after():
    pass
"""
REALTIME = """
import pytest

@pytest.mark.realtime
def test_it_plays(worker_id):
    print("worker", worker_id)

@pytest.mark.parametrize("number", range(8))
def test_beside_it(worker_id, number):
    print("worker", worker_id)
"""


def run(folder: Path, tests: str, workers: int) -> str:
    """Run tests in worker processes; return what pytest prints."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(tests)
    options = ["-p", "xdist", "-p", "no:cacheprovider", "-rP", "-W", "ignore"]
    distribution = ["-n", str(workers), "--dist", "loadgroup"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, *distribution]
        + ["--rootdir", str(folder), str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout


def test_a_crash_of_a_worker_fails_one_test_and_ends_no_run(tmp_path: Path) -> None:
    """The test that crashed counts as failed and is not repeated; a new worker runs the rest."""
    output = run(tmp_path, CRASH, workers=1)
    assert output.count("crashed while running 'test_it.py::test_that_crashes'") > 0
    assert output.splitlines()[-1].startswith("1 failed, 2 passed")


def test_a_file_that_plays_stays_in_one_worker(tmp_path: Path) -> None:
    """Its tests share a server, and no other test of its worker computes meanwhile."""
    output = run(tmp_path, REALTIME, workers=2)
    assert output.splitlines()[-1].startswith("9 passed")
    used = [line for line in output.splitlines() if line.startswith("worker ")]
    assert len(used) == 9 and len(set(used)) == 1
