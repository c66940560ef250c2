"""Which worker process runs which test, so that sound plays on time while other tests compute.

Tests that play on the wall clock need little of a processor, but at once. The first workers have a
lower priority and prefer tests that compute; the others prefer tests that play.
"""

import os

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_COMPUTING_WORKERS = 2
_NICENESS = 10
_GROUP = "realtime"
_FIXTURES = frozenset(
    {"served", "server", "shared_server", "start_server", "start_process", "start_synthesizer"}
)
"""Fixtures that start a server, whose tests play on the wall clock."""


class RealtimeScheduling(LoadScopeScheduling):
    """Gives a file that plays to one worker as a whole, and other tests function by function.

    Tests of one `xdist_group` run in one worker.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.endswith(f"@{_GROUP}"):
            return f"{nodeid.partition('::')[0]}@{_GROUP}"
        _, at, group = nodeid[nodeid.rfind("]") + 1 :].partition("@")
        return group if at else nodeid.partition("[")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        plays = not _computes(node.gateway.id)
        scopes = list(self.workqueue)
        chosen = next((s for s in scopes if s.endswith(f"@{_GROUP}") == plays), scopes[0])
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)


def lower_priority() -> None:
    """Lower the priority of this process if it is a worker for tests that compute."""
    if _computes(os.environ.get("PYTEST_XDIST_WORKER", "")):
        os.nice(_NICENESS)


def mark_realtime(items: list[pytest.Item]) -> None:
    """Put every test of a file that has a real-time test into the group of those."""
    files = {item.path for item in items if _is_realtime(item)}
    for item in items:
        if item.path in files:
            item.add_marker(pytest.mark.xdist_group(_GROUP))


def _is_realtime(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    return item.get_closest_marker("realtime") is not None or not _FIXTURES.isdisjoint(fixtures)


def _computes(worker: str) -> bool:
    number = worker.removeprefix("gw")
    return number.isdigit() and int(number) < _COMPUTING_WORKERS
