"""Kill engines of a server; this module depends on no agent framework and no protocol."""

import contextlib

import psutil

_ENGINE_MODULE = "voiceagent_tts.worker"


def kill_engine(server_pid: int) -> None:
    """Send SIGKILL to the engine processes of a server; the server restarts them."""
    for process in psutil.Process(server_pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if _ENGINE_MODULE in process.cmdline():
                process.kill()
