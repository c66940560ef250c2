"""`python -m testbed.failing_worker ...`: the worker's program on a GPU that fails.

`FAILING_GPU` has the faults of each rung as JSON, for `testbed.failing_gpu`.
"""

import json
import os
import sys
from collections.abc import Callable
from unittest.mock import patch

from testbed.failing_gpu import FailingGpu, failing_gpu, rung_of_this_process
from voiceagent_tts.seam.engine import Engine
from voiceagent_tts.seam.engine_kind import WorkerSpec
from voiceagent_tts.worker.__main__ import main
from voiceagent_tts.worker.host import _Host

VARIABLE = "FAILING_GPU"


class FailingSpec(WorkerSpec):
    """Describes this program in place of the worker's."""

    __slots__ = ()

    def argv(self, endpoint: str) -> list[str]:
        _, _, _, *rest = super().argv(endpoint)
        return [sys.executable, "-m", "testbed.failing_worker", *rest]


def _served_by(gpu: FailingGpu) -> Callable[[_Host, Engine], None]:
    serve = _Host._loop

    def loop(hosting: _Host, engine: Engine) -> None:
        gpu.is_serving = True
        serve(hosting, engine)

    return loop


if __name__ == "__main__":
    faults = json.loads(os.environ[VARIABLE])
    gpu = FailingGpu(faults[rung_of_this_process()], ends_process=True)
    with failing_gpu(gpu), patch.object(_Host, "_loop", _served_by(gpu)):
        raise SystemExit(main())
