"""Order in which pytest-xdist distributes tests to its workers (`testbed.workers`)."""

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from testbed.workers import GROUP, computes


class RealtimeScheduling(LoadScopeScheduling):
    """Sends a file with real-time tests to one worker as a whole, and other tests individually.

    Tests of one `xdist_group` run in one worker.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.endswith(f"@{GROUP}"):
            return f"{nodeid.partition('::')[0]}@{GROUP}"
        _, at, group = nodeid[nodeid.rfind("]") + 1 :].partition("@")
        return group if at else nodeid.partition("[")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        plays = not computes(node.gateway.id)
        scopes = list(self.workqueue)
        chosen = next((s for s in scopes if s.endswith(f"@{GROUP}") == plays), scopes[0])
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """Assign work until the worker has two tests, or send it the end.

        A worker starts a test only when it knows the next one or that there is none. A unit can be
        a single test, and a worker that replaces a crashed one would wait for ever with it.
        """
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test that crashed the worker, if it did; other workers get the rest.

        The test itself is not repeated, because it would crash the next worker, too.
        """
        units = self.assigned_work.pop(node)
        waiting = [(unit, test) for unit in units.values() for test in unit if not unit[test]]
        if not waiting:
            return None
        unit, crashed = waiting[0]
        unit[crashed] = True
        self.workqueue.update(
            (scope, unit) for scope, unit in units.items() if not all(unit.values())
        )
        for other in self.nodes:
            self._reschedule(other)
        return crashed
