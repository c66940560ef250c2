"""Imports Pipecat once for all tests of this folder; a fixture for its log."""

import warnings
from collections.abc import Iterator

import pytest
from loguru import logger

with warnings.catch_warnings():
    # Its deprecated classes warn where they are defined, in the name of `abc`.
    warnings.simplefilter("ignore")
    import pipecat.services.tts_service  # noqa: F401


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Lines of this package's log in Pipecat, from INFO on."""
    lines: list[str] = []
    sink = logger.add(
        lambda line: lines.append(line.rstrip()),
        level="INFO",
        format="{message}",
        filter="voiceagent_tts",
    )
    yield lines
    logger.remove(sink)
