"""Tests that hang: each ends as failed, and so do its fixtures, and the run goes on."""

import asyncio
import contextlib
import functools
import inspect
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from testbed.waiting import PATIENCE_S

_SETTINGS = pytest.StashKey[Any]()
_SHARE = 0.8
"""Part of a test's time after which it is cancelled; the rest is for what it then ends."""


def note_time_limit(item: pytest.Item, settings: Any) -> None:
    """Note pytest-timeout's settings for a test, which has just begun."""
    item.stash[_SETTINGS] = settings


def start_clock_again(item: pytest.Item) -> None:
    """Give the test as much time again."""
    if _SETTINGS in item.stash:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=item.stash[_SETTINGS])


@contextlib.contextmanager
def repeated_alarm(item: pytest.Item) -> Iterator[None]:
    """Within the block, end whatever hangs after the first thing that hung, and stop the clock.

    pytest-timeout's alarm sounds once: what hangs in a `finally` would never end.
    """
    if _SETTINGS not in item.stash:
        yield
        return
    left_s, _ = signal.getitimer(signal.ITIMER_REAL)
    if left_s:  # 0 where pytest-timeout has set no alarm but started a thread
        signal.setitimer(signal.ITIMER_REAL, left_s, PATIENCE_S)
    try:
        yield
    finally:
        item.ihook.pytest_timeout_cancel_timer(item=item)


@contextlib.contextmanager
def cancel_when_it_hangs(item: pytest.Item) -> Iterator[None]:
    """Within the block, cancel the test if it is asynchronous and has used most of its time.

    A signal would leave its tasks and sockets open, and fixtures that end would wait for them.
    Every example of a property test has this time.
    """
    property_test = getattr(getattr(item, "obj", None), "hypothesis", None)
    owner, name = (property_test, "inner_test") if property_test else (item, "obj")
    function = getattr(owner, name, None)
    if _SETTINGS not in item.stash or not inspect.iscoroutinefunction(function):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        limit_s = _SHARE * item.stash[_SETTINGS].timeout
        patch.setattr(owner, name, _cancelled_after(limit_s, function))
        yield


def _cancelled_after(
    limit_s: float, function: Callable[..., Awaitable[None]]
) -> Callable[..., Awaitable[None]]:
    @functools.wraps(function)
    async def limited(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(limit_s):
            await function(*args, **kwargs)

    return limited
