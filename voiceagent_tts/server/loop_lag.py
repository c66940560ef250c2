"""Measures how late the event loop is: every listener waits for whatever blocks it."""

import asyncio
from collections import deque
from collections.abc import Callable

_INTERVAL_S = 0.1
LONGEST_OF_S = 60.0
"""Time of which the longest stall is kept: one stall is one of 600 measurements in a minute, which
no percentile shows."""


class LoopLag:
    """Measures ten times a second by how many seconds the event loop was late.

    Args:
        observe: receives each measurement.
    """

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._longest: deque[tuple[float, float]] = deque()
        """Time and length of stalls that no later one exceeds, the longest first."""

    def note(self, now: float, lag_s: float) -> None:
        """Note a measurement."""
        self._observe(lag_s)
        while self._longest and self._longest[-1][1] <= lag_s:
            self._longest.pop()
        self._longest.append((now, lag_s))
        while self._longest[0][0] < now - LONGEST_OF_S:
            self._longest.popleft()

    @property
    def longest_s(self) -> float:
        """The longest stall of the last minute."""
        return self._longest[0][1] if self._longest else 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _INTERVAL_S
            await asyncio.sleep(_INTERVAL_S)
            now = loop.time()
            self.note(now, max(0.0, now - due))
