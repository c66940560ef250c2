"""Programs that start processes and are ended by a signal: what is left of them."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from testbed.waiting import PATIENCE_S
from voiceagent_tts.offspring import Following

_ROOT = Path(__file__).parents[1]
_TELL = """
import sys, time

def tell(*pids):
    print(*pids, flush=True)
    time.sleep(600)
"""
"""What a program calls with the numbers of the processes that it has started."""


def ends_with_its_parent(program: str, by: signal.Signals, folder: Path) -> bool:
    """Whether all processes that a program names have ended after it was ended by a signal."""
    argv = [sys.executable, "-c", _TELL + program, str(folder)]
    with subprocess.Popen(
        argv, cwd=_ROOT, stdout=subprocess.PIPE, preexec_fn=Following(os.getpid())
    ) as parent:
        assert parent.stdout is not None
        children = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
        assert children, "the program has started nothing"
        try:
            parent.send_signal(by)
            return all(select.select([each], [], [], PATIENCE_S)[0] for each in children)
        finally:
            for each in children:
                os.close(each)
