"""`testbed.waiting`: repeated attempts."""

import asyncio
import time

from testbed.waiting import undisturbed


async def test_an_attempt_that_was_held_up_is_made_again() -> None:
    """The first attempt that was not suspended counts; else the last."""
    holds_s = [0.3, 0.3, 0.0, 0.3]
    attempts = 0

    async def attempt() -> int:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(0)
        time.sleep(holds_s[(attempts - 1) % len(holds_s)])
        await asyncio.sleep(0)
        return attempts

    assert await undisturbed(attempt) == 3
    holds_s = [0.3]
    assert await undisturbed(attempt) == 3 + 4
