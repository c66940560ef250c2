"""`python -m testbed.failing_worker ...`: the worker's program on a GPU that fails.

`FAILING_GPU` has the faults of each rung as JSON, for `testbed.failing_gpu`.
"""

import json
import os
import sys

from testbed.failing_gpu import FailingGpu, failing_gpu, rung_of_this_process
from voiceagent_tts.synthesizer.workers import WorkerSpec
from voiceagent_tts.worker.__main__ import main

VARIABLE = "FAILING_GPU"


class FailingSpec(WorkerSpec):
    """Describes this program in place of the worker's."""

    __slots__ = ()

    def argv(self, endpoint: str) -> list[str]:
        """Command line of this program."""
        _, _, _, *rest = super().argv(endpoint)
        return [sys.executable, "-m", "testbed.failing_worker", *rest]


if __name__ == "__main__":
    faults = json.loads(os.environ[VARIABLE])
    with failing_gpu(FailingGpu(faults[rung_of_this_process()], ends_process=True)):
        raise SystemExit(main())
