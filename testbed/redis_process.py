"""A real Redis server, which can go away and come back. Needs Debian's `redis-server`.

While it runs, the clients that this process makes are patient: a busy machine may hold up both ends
for longer than a client waits for an answer.
"""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from testbed.missing import require_program
from testbed.waiting import PATIENCE_S, wait_until
from voiceagent_tts.offspring import Following
from voiceagent_tts.plugins.redis import connection

USUAL_TIMEOUT_S = connection.TIMEOUT_S
"""How long clients wait for an answer."""


class RedisProcess:
    """A Redis server on a port of this machine, in memory only; use it as a context manager."""

    def __init__(self, port: int, folder: Path = Path("/tmp")) -> None:
        self._port = port
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._patience = contextlib.ExitStack()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        """Start the server, empty; returns when it answers.

        It is killed with this process, because it may be suspended.
        """
        argv = [require_program("redis-server"), "--port", str(self._port), "--bind", "127.0.0.1",
                "--save", "", "--appendonly", "no", "--dir", str(self._folder)]  # fmt: skip
        self._process = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, preexec_fn=Following(os.getpid(), signal.SIGKILL)
        )
        wait_until(self._answers, "Redis starts")

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def stop(self) -> None:
        """Kill the server, as a failing machine does; idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Stop the server from answering within the block; it still accepts connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self._patience.enter_context(clients_wait(PATIENCE_S))
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._patience.close()


@contextlib.contextmanager
def clients_wait(seconds: float) -> Iterator[None]:
    """Let the clients that are made within the block wait so long for an answer."""
    before, connection.TIMEOUT_S = connection.TIMEOUT_S, seconds
    try:
        yield
    finally:
        connection.TIMEOUT_S = before
