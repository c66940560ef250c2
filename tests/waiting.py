"""Waiting for what no event tells: a condition outside of the test's reach."""

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 20.0
"""Ends a test that waits for what never comes; no claim about speed."""


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until `condition` holds; `what` is that claim in words."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        await asyncio.sleep(0.005)
