"""Measures how late the event loop is: every listener waits for whatever blocks it."""

import asyncio
from collections.abc import Callable

_INTERVAL_S = 0.1


async def watch_loop_lag(observe: Callable[[float], None]) -> None:
    """Report ten times a second by how many seconds the event loop was late, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _INTERVAL_S
        await asyncio.sleep(_INTERVAL_S)
        observe(max(0.0, loop.time() - due))
