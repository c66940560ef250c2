"""Servers as a user runs them, with settings."""

import contextlib
from collections.abc import Iterator

import pytest

from testbed.server_process import StartProcess, serving


@pytest.fixture
def start_process() -> Iterator[StartProcess]:
    """Start servers with given settings; those still alive are killed with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda **environment: stack.enter_context(serving(**environment))
