"""`Turns` shares the event loop between owners."""

import asyncio

import pytest

from testbed.waiting import until
from voiceagent_tts.synthesizer.segments import Turns


async def _iterations(turns: Turns, takes: list[tuple[str, int]]) -> list[list[str]]:
    """The owners whose work is done in each iteration of the loop, without idle ones."""
    done: list[list[str]] = [[]]
    for owner, cost in takes:
        turns.take(owner, lambda owner=owner: done[-1].append(owner), cost)
    while sum(map(len, done)) < len(takes):
        done.append([])
        await asyncio.sleep(0)
    return [each for each in done if each]


async def test_an_owner_waits_for_one_piece_of_each_other() -> None:
    """Hundreds of pieces of another one that came before do not delay its only one."""
    takes = [("many", 1)] * 300 + [("few", 1)] * 2 + [("one", 1)]
    order = [owner for each in await _iterations(Turns(), takes) for owner in each]
    assert order[:7] == ["many", "many", "few", "one", "many", "few", "many"]


async def test_a_piece_that_fails_keeps_none_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error goes to the handler of the event loop."""
    failed: list[object] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_exception_handler", failed.append)

    def fail() -> None:
        raise RuntimeError("planted")

    turns, done = Turns(), list[str]()
    for work in (lambda: None, fail, lambda: done.append("next")):
        turns.take("a", work)
    await until(lambda: done == ["next"], "the next one has its turn")
    assert len(failed) == 1


async def test_a_turn_that_nobody_waits_for_costs_none() -> None:
    """Thousands that were cancelled delay nobody."""
    turns = Turns()
    assert turns.take_now()
    waiting = [asyncio.create_task(turns.wait("a")) for _ in range(1_000)]
    await asyncio.sleep(0)
    for task in waiting[5:]:
        task.cancel()
    last, iterations = asyncio.create_task(turns.wait("a")), 0
    while not last.done():
        await asyncio.sleep(0)
        iterations += 1
    assert iterations < 20
    await asyncio.gather(*waiting, return_exceptions=True)
