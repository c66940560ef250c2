"""Fixtures: the tiny checkpoints of `tests/reference`, loaded once per session."""

from functools import cache

import pytest

from testbed.parity_reference import REFERENCE, LoadTiny
from voiceagent_tts.model.checkpoint import Checkpoint, load_checkpoint


@pytest.fixture(scope="session")
def load_tiny() -> LoadTiny:
    return cache(lambda name: load_checkpoint(REFERENCE / name))


@pytest.fixture(scope="session")
def custom_voice(load_tiny: LoadTiny) -> Checkpoint:
    """Return the tiny CustomVoice checkpoint; its code predictor is narrower than its talker."""
    return load_tiny("custom_voice-1b7")


@pytest.fixture(scope="session")
def base(load_tiny: LoadTiny) -> Checkpoint:
    return load_tiny("base-0b6")
