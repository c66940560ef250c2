"""Fixtures: servers as a user starts them, with settings."""

import contextlib
from collections.abc import Iterator

import pytest

from testbed.server_process import StartProcess, serving


@pytest.fixture
def start_process() -> Iterator[StartProcess]:
    """Start servers with given settings; those still running are killed after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda **environment: stack.enter_context(serving(**environment))
