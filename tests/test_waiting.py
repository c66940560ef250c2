"""`testbed.waiting`: repeated attempts."""

import asyncio

import pytest

from testbed import waiting
from testbed.waiting import MovedError, undisturbed


class Clock:
    """The clock of `testbed.waiting`; only attempts move it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        """The time that the attempts have set."""
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that a busy machine does not move, which is read in every round of the loop."""
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    monkeypatch.setattr(waiting, "_TICK_S", 0.0)
    return clock


class Attempts:
    """Attempts that are held up as `holds_s` says, from the first on again after the last."""

    def __init__(self, clock: Clock, holds_s: list[list[float]]) -> None:
        self.count = 0
        self._clock = clock
        self._holds_s = holds_s

    async def __call__(self) -> int:
        """Be held up; return the number of this attempt."""
        holds_s = self._holds_s[self.count % len(self._holds_s)]
        self.count += 1
        for hold_s in holds_s:
            for _ in range(3):
                await asyncio.sleep(0)
            self._clock.now_s += hold_s
        return self.count


async def test_an_attempt_that_was_held_up_is_made_again(clock: Clock) -> None:
    """The first attempt that was not suspended counts; else the last."""
    assert await undisturbed(Attempts(clock, [[0.3], [0.3], [0.0], [0.3]])) == 3
    assert await undisturbed(Attempts(clock, [[0.3]])) == 6


async def test_an_attempt_may_block_the_loop_itself(clock: Clock) -> None:
    """Only more standstills than its own are a disturbance."""
    attempts = Attempts(clock, [[0.2, 0.2], [0.2]])
    assert await undisturbed(attempts, own_standstills=1) == 2


async def test_an_attempt_that_was_moved_never_counts(clock: Clock) -> None:
    """It is made again, also after more attempts than are made for a suspended process."""
    moved = [True] * 10 + [False]

    async def attempt() -> int:
        if moved.pop(0):
            raise MovedError("the cut fell on a word")
        return len(moved)

    assert await undisturbed(attempt) == 0
    moved = [True] * 1_000
    with pytest.raises(MovedError, match="the cut fell on a word"):
        await undisturbed(attempt)
