"""An event loop whose clock jumps to the next timer: sleeps take no time and end exactly on time.

Sockets are real. Time stands still while one of them has something to deliver, so a message arrives
at the time at which it was sent, if both ends run in this loop.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_GRACE_S = 0.002
"""Real time for which nothing may arrive before the clock jumps."""
_LONG_S = 1.0
_LONG_GRACE_S = 0.05
"""The same before a jump of `_LONG_S` or more: a busy kernel takes milliseconds to deliver, and a
message that is late by a second runs into a timeout."""

_Result = TypeVar("_Result")


class _Selector(selectors.DefaultSelector):
    def __init__(self, *, has_sockets: bool) -> None:
        super().__init__()
        self.now = 1_000.0
        self._has_sockets = has_sockets

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self._has_sockets:
            assert timeout is not None, "nothing will ever happen"
            self.now += max(0.0, timeout)
            return super().select(0)
        if timeout is None:
            return super().select(_GRACE_S)
        grace_s = _LONG_GRACE_S if timeout >= _LONG_S else _GRACE_S
        if events := super().select(grace_s if timeout > 0 else 0):
            return events
        self.now += max(0.0, timeout)
        return []


class ScriptedLoop(asyncio.SelectorEventLoop):
    """An event loop with that clock."""

    def __init__(self, *, has_sockets: bool = True) -> None:
        self._scripted = _Selector(has_sockets=has_sockets)
        super().__init__(self._scripted)

    def time(self) -> float:
        return self._scripted.now

    def hold_up(self, seconds: float) -> None:
        """Let time pass in which nothing runs here: other programs have the processor."""
        self._scripted.now += seconds


def run_scripted(main: Coroutine[Any, Any, _Result], *, has_sockets: bool = True) -> _Result:
    """Run `main` in an event loop of its own, on the scripted clock."""
    with asyncio.Runner(loop_factory=lambda: ScriptedLoop(has_sockets=has_sockets)) as runner:
        return runner.run(main)
