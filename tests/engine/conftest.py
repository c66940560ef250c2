"""Engines over a tiny real checkpoint."""

from collections.abc import Callable

import pytest
import torch

from testbed.engine_driving import Driver
from testbed.tiny_fixtures import base, custom_voice, load_tiny

__all__ = ["base", "custom_voice", "load_tiny"]

torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other


@pytest.fixture
def driver() -> Driver:
    """A CustomVoice model of four rows."""
    return Driver()


@pytest.fixture
def make_driver() -> Callable[..., Driver]:
    """Drivers of other models and sizes."""
    return Driver
