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
