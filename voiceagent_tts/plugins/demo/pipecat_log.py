"""Pipecat's own log, which writes every frame to standard error unless told otherwise."""

import sys

from loguru import logger


def quiet(level: str = "WARNING") -> None:
    """Log `level` and above alone, for this process; before Pipecat's import, also no banner."""
    logger.remove()
    logger.add(sys.stderr, level=level)
