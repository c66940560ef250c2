"""Conditions of barge-ins by their names on the command line."""

import os
import random
from pathlib import Path

import pytest

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.bargein.conditions import Condition, Happening, conditions_of
from voiceagent_tts.plugins.bench.bargein.other_work import busy_loops


def test_names_select_what_happens_to_the_replies() -> None:
    """Each condition has its own plan; the rest is as the base says."""
    base = Condition(cuts=10, together=2, languages=("en", "zh"))
    steady, stalls, breaks, busy = conditions_of(["steady", "stalls", "breaks", "busy"], base)
    assert [each.cuts for each in (steady, stalls, breaks, busy)] == [10, 10, 10, 10]
    for condition in (steady, stalls, breaks, busy):
        cuts = [cut for session in condition.plans(random.Random(1)) for cut in session]
        assert {cut.language for cut in cuts} == {"en", "zh"}
        assert all((cut.stall is not None) == (condition is stalls) for cut in cuts)
        assert all((cut.fault_at_s is not None) == (condition is breaks) for cut in cuts)
    assert (stalls.happening.fault, breaks.happening.fault) == (None, "connection")
    assert [each.happening.busy_loops for each in (steady, busy)] == [0, 2]
    assert len({each.heading for each in Happening}) == len(Happening)


@pytest.mark.parametrize("names", [[], ["quiet"], ["steady", ""]])
def test_unknown_conditions_are_refused(names: list[str]) -> None:
    """The error lists those that there are."""
    with pytest.raises(InvalidRequestError, match="steady, stalls, breaks"):
        conditions_of(names, Condition())


def test_unknown_languages_are_refused() -> None:
    """There are replies in seven."""
    with pytest.raises(InvalidRequestError, match="languages"):
        conditions_of(["steady"], Condition(languages=("tlh",)))


def test_busy_loops_end_with_their_block() -> None:
    """They run while the agents talk, and no longer."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text().split()
    with busy_loops(2):
        running = set(children.read_text().split()) - set(before)
        assert len(running) == 2
    assert not running & set(children.read_text().split())
