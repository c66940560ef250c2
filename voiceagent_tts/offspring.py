"""`Following`: a process that ends with the process that started it, however that ends.

A parent's own `finally` does not run when a signal ends it. Only Linux can do without; elsewhere a
parent that is killed leaves its children.
"""

import ctypes
import os
import signal
import sys
from dataclasses import dataclass

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Following:
    """What a child calls at its start, to be sent a signal as soon as its parent has ended.

    Attributes:
        parent_pid: the parent.
        by: what is sent. SIGKILL also ends a child that is stopped, or that ignores other signals.
    """

    parent_pid: int
    by: int = signal.SIGTERM

    def __call__(self) -> None:
        """Ask for the signal."""
        if _prctl is None:
            return
        _prctl(_PR_SET_PDEATHSIG, self.by)
        if os.getppid() != self.parent_pid:  # it has ended already
            os.kill(os.getpid(), self.by)
