"""Fixtures: the tiny checkpoints of `tests/reference`."""

from collections.abc import Iterator

import pytest
import torch

from testbed.tiny_fixtures import base, custom_voice, load_tiny

__all__ = ["base", "custom_voice", "load_tiny"]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: operations on tiny matrices are slower on two."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
