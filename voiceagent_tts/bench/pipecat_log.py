"""Pipecat's own log, which writes every frame to standard error unless told otherwise."""

import sys

from loguru import logger


def quiet() -> None:
    """Log warnings and errors alone, for this process."""
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
