"""Servers as a user runs them, with settings."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import serving
from tests.e2e.process import ServerProcess

StartProcess = Callable[..., ServerProcess]


@pytest.fixture
def start_process() -> Iterator[StartProcess]:
    """Start servers with given settings; those still alive are killed with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda **environment: stack.enter_context(serving(**environment))
