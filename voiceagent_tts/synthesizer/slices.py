"""Turns of the event loop for work that is cut into slices, so that no listener waits for it."""

import asyncio
from collections import deque
from collections.abc import Callable


class Slices:
    """Runs one slice in each turn of the event loop, those of all contexts in the order of adding.

    However many contexts have long texts, what else the loop has to do waits for one slice only.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, run_slice: Callable[[], None]) -> None:
        """Run a slice in a later turn; it raises nothing, and adds the next one itself."""
        self._waiting.append(run_slice)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        run_slice = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._run)
        run_slice()
