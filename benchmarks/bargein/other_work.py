"""Other work on the machine while agents talk: processes that need all the CPU they get."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from voiceagent_tts.offspring import Following

BUSY_LOOPS = 2
"""Processes beside the sessions that a condition with other work runs."""


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Run `count` processes that never wait, within the block."""
    argv = sys.executable, "-c", "while True: pass"
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen(argv, preexec_fn=Following(os.getpid()))
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield
