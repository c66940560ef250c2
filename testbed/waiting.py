"""Wait for conditions without an event, and repeat measurements that a busy machine disturbed."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import TypeVar

PATIENCE_S = 60.0
"""Seconds until a waiting test fails; not a claim about speed."""

_ATTEMPTS = 6
_MOVED_ATTEMPTS = 20
_TICK_S = 0.01
_STANDSTILL_S = 0.1
"""Ten times the longest time that a test keeps its event loop busy."""

_Result = TypeVar("_Result")


class MovedError(Exception):
    """A busy machine moved what an attempt does to a moment at which its claim decides nothing."""


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until `condition` is true; `what` describes it for the failure message."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        await asyncio.sleep(0.005)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """As `until`, where no event loop runs."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.01)


async def undisturbed(
    attempt: Callable[[], Awaitable[_Result]],
    own_standstills: int = 0,
    holds: Callable[[_Result], bool] | None = None,
) -> _Result:
    """Return the result of an attempt that other processes did not disturb.

    The attempt depends on real time, so it is repeated if a busy machine suspended this process.
    The last of a few attempts counts even if it was disturbed. One that raises `MovedError` never
    counts.

    Args:
        attempt: what to repeat.
        own_standstills: how often the attempt itself blocks the event loop.
        holds: whether a result shows the claim, also that the attempt came to its point: one that
            does so counts although the attempt was disturbed.

    Raises:
        MovedError: all of many attempts have raised it.
    """
    suspended = 0
    for _ in range(_MOVED_ATTEMPTS - 1):
        ticks_s = [time.monotonic()]
        ticking = asyncio.create_task(_tick(ticks_s))
        try:
            result = await attempt()
        except MovedError:
            continue
        finally:
            ticking.cancel()
        ticks_s.append(time.monotonic())
        gaps_s = [late - early for early, late in pairwise(ticks_s)]
        is_disturbed = sum(gap_s >= _STANDSTILL_S for gap_s in gaps_s) > own_standstills
        suspended += is_disturbed
        shows_claim = holds is not None and holds(result)
        if not is_disturbed or shows_claim or suspended == _ATTEMPTS:
            return result
    return await attempt()


async def _tick(ticks_s: list[float]) -> None:
    while True:
        await asyncio.sleep(_TICK_S)
        ticks_s.append(time.monotonic())
