"""Fixtures: engines over a tiny real checkpoint."""

import pytest

from testbed.engine_driving import Driver
from testbed.tiny_fixtures import base, custom_voice, load_tiny

__all__ = ["base", "custom_voice", "load_tiny"]


@pytest.fixture
def driver() -> Driver:
    return Driver()
