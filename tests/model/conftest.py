"""Fixtures: the tiny checkpoints of `tests/reference`, and Triton without a GPU."""

from collections.abc import Callable, Iterator

import pytest
import torch

from testbed.gpu import ON_GPU
from testbed.tiny_fixtures import base, custom_voice, load_tiny
from testbed.triton_here import Resources, Run, Where, compiling, interpreting

__all__ = ["base", "custom_voice", "load_tiny"]


@pytest.fixture(scope="session")
def run_interpreted() -> Iterator[Run]:
    """Run functions with interpreted kernels; the process takes seconds to start."""
    with interpreting() as run:
        yield run


@pytest.fixture(scope="module", params=["interpreted", pytest.param("cuda", marks=ON_GPU)])
def where(request: pytest.FixtureRequest) -> Iterator[Where]:
    if request.param == "cuda":
        yield lambda function, *arguments: function(*arguments), torch.device("cuda")
        return
    yield request.getfixturevalue("run_interpreted"), torch.device("cpu")


@pytest.fixture(scope="session")
def compile_for() -> Iterator[Callable[..., list[Resources]]]:
    """Compile the kernels that a call launches, for GPUs that this machine lacks."""
    with compiling() as compile_for:
        yield compile_for
