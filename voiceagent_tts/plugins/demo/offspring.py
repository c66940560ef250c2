"""`following`: a process that ends with the process that started it, however that ends.

A parent's own `finally` does not run when a signal ends it. Only Linux can do without; elsewhere a
parent that is killed leaves its children.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def following(parent_pid: int) -> Callable[[], None]:
    """What a child calls at its start, to be asked to end as soon as `parent_pid` has ended."""

    def follow() -> None:
        if _prctl is None:
            return
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent_pid:  # it has ended already
            os.kill(os.getpid(), signal.SIGTERM)

    return follow
