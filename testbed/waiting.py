"""Waiting for what no event tells: a condition outside of the test's reach, a machine with time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import TypeVar

PATIENCE_S = 20.0
"""Ends a test that waits for what never comes; no claim about speed."""

_ATTEMPTS = 4
_TICK_S = 0.01
_STANDSTILL_S = 0.1
"""Ten times what anything here keeps a loop busy for."""

_Result = TypeVar("_Result")


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until `condition` holds; `what` is that claim in words."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        await asyncio.sleep(0.005)


async def undisturbed(attempt: Callable[[], Awaitable[_Result]]) -> _Result:
    """What `attempt` finds where nothing else holds this process up.

    Real time is part of what the attempt is about. Where a shared machine lets the process stand
    still, it is made again; the last of a few counts, whatever happened in it.
    """
    for _ in range(_ATTEMPTS - 1):
        ticks_s = [time.monotonic()]
        ticking = asyncio.create_task(_tick(ticks_s))
        try:
            result = await attempt()
        finally:
            ticking.cancel()
        ticks_s.append(time.monotonic())
        if max(late - early for early, late in pairwise(ticks_s)) < _STANDSTILL_S:
            return result
    return await attempt()


async def _tick(ticks_s: list[float]) -> None:
    while True:
        await asyncio.sleep(_TICK_S)
        ticks_s.append(time.monotonic())
