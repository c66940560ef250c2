"""The server as a user runs it: a process of its own."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.process import ServerProcess

StartProcess = Callable[..., ServerProcess]


@contextlib.contextmanager
def _serving(**environment: str) -> Iterator[ServerProcess]:
    argv = [sys.executable, "-m", "voiceagent_tts", "serve", "--port", "0"]
    settings = {f"VOICEAGENT_TTS_{name.upper()}": value for name, value in environment.items()}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, **settings}) as process:
        try:
            assert process.stdout is not None
            yield ServerProcess(process, process.stdout.readline().decode())
        finally:
            process.kill()


@pytest.fixture(scope="session")
def served() -> Iterator[ServerProcess]:
    """One server for all tests that leave it as it was; it ends with status 0."""
    with _serving() as server:
        yield server
        server.terminate()
        assert server.process.wait(20) == 0


@pytest.fixture
def start_process() -> Iterator[StartProcess]:
    """Start servers with given settings; those still alive are killed with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda **environment: stack.enter_context(_serving(**environment))
