"""`python -m testbed.throttled_worker ...`: the worker's program with a slow or faulty engine.

The environment has the fields of `Throttle` as JSON.
"""

import json
import os
import signal
from typing import Any

from testbed.throttled import VARIABLE, CrashRequested, MakeEngine, Throttle, Throttled
from voiceagent_tts.worker import __main__ as program


def main() -> int:
    throttle = Throttle(**json.loads(os.environ[VARIABLE]))
    program.KINDS.update({kind: _throttled(make, throttle) for kind, make in program.KINDS.items()})
    try:
        return program.main()
    except CrashRequested:
        os.kill(os.getpid(), signal.SIGKILL)
        raise


def _throttled(make: program.Make, throttle: Throttle) -> program.Make:
    def make_throttled(options: dict[str, Any]) -> MakeEngine:
        make_inner = make(options)
        return lambda inbox, outbox: Throttled(make_inner, inbox, outbox, throttle)

    return make_throttled


if __name__ == "__main__":
    raise SystemExit(main())
