"""Conditions of barge-ins by their names on the command line."""

import random

import pytest

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.bargein.conditions import Condition, Happening, conditions_of


def test_names_select_what_happens_to_the_replies() -> None:
    """Each condition has its own plan; the rest is as the base says."""
    base = Condition(cuts=10, together=2, languages=("en", "zh"))
    steady, stalls, breaks = conditions_of(["steady", "stalls", "breaks"], base)
    assert [each.cuts for each in (steady, stalls, breaks)] == [10, 10, 10]
    for condition in (steady, stalls, breaks):
        cuts = [cut for session in condition.plans(random.Random(1)) for cut in session]
        assert {cut.language for cut in cuts} == {"en", "zh"}
        assert all((cut.stall is not None) == (condition is stalls) for cut in cuts)
        assert all((cut.fault_at_s is not None) == (condition is breaks) for cut in cuts)
    assert (stalls.happening.fault, breaks.happening.fault) == (None, "connection")
    assert len({each.heading for each in Happening}) == len(Happening)


@pytest.mark.parametrize("names", [[], ["quiet"], ["steady", ""]])
def test_unknown_conditions_are_refused(names: list[str]) -> None:
    """The error lists those that there are."""
    with pytest.raises(InvalidRequestError, match="steady, stalls, breaks"):
        conditions_of(names, Condition())
    with pytest.raises(InvalidRequestError, match="languages"):
        conditions_of(["steady"], Condition(languages=("tlh",)))
