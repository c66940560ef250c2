"""Kill engines of a server; this module depends on no agent framework and no protocol."""

import contextlib
import os

import psutil


def kill_engine(server_pid: int) -> None:
    """Send SIGKILL to the engine processes of a server; the server restarts them."""
    for process in psutil.Process(server_pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(process.pid) == process.pid:  # the server gives only engines a session
                process.kill()
