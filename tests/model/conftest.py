"""Fixtures: the tiny checkpoints of `tests/reference`, and Triton without a GPU."""

from collections.abc import Callable, Iterator

import pytest

from testbed.tiny_fixtures import base, custom_voice, load_tiny
from testbed.triton_here import Resources, Run, compiling, interpreting

__all__ = ["base", "custom_voice", "load_tiny"]


@pytest.fixture(scope="session")
def run_interpreted() -> Iterator[Run]:
    """Run functions with interpreted kernels; the process takes seconds to start."""
    with interpreting() as run:
        yield run


@pytest.fixture(scope="session")
def compile_for() -> Iterator[Callable[..., list[Resources]]]:
    """Compile the kernels that a call launches, for GPUs that this machine lacks."""
    with compiling() as compile_for:
        yield compile_for
