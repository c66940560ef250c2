"""The plan of cuts, and the pace at which a reply is written."""

import random

import pytest

from voiceagent_tts.plugins.bench.bargein.replies import (
    EARLIEST_CUT_S,
    LATEST_CUT_S,
    plan,
    with_faults,
    with_stalls,
)

LANGUAGES = ("en", "zh", "ja", "de", "fr")


def test_cuts_are_spread_over_languages_and_time() -> None:
    """Two hundred cuts cover five languages and leave no long gap in time."""
    planned = plan(200, 8, random.Random(1), LANGUAGES)
    cuts = [cut for session in planned for cut in session]
    assert len(cuts) == 200
    assert {cut.language for cut in cuts} == set(LANGUAGES)
    assert all(len({cut.language for cut in session}) == 1 for session in planned)
    times = sorted(cut.at_s for cut in cuts)
    assert times[0] >= EARLIEST_CUT_S and times[-1] <= LATEST_CUT_S
    assert max(later - earlier for earlier, later in zip(times, times[1:], strict=False)) < 0.04


def test_the_script_of_a_reply_is_the_reply() -> None:
    """The tokens come at thirty per second, with one requested pause before a word."""
    for cut in with_stalls(plan(40, 8, random.Random(1), LANGUAGES)[0], random.Random(2)):
        script = list(cut.script())
        assert "".join(token for _, token in script) == cut.text
        waits_s = [wait_s for wait_s, _ in script]
        assert sum(wait_s > 1 for wait_s in waits_s) == 1
        assert waits_s[-1] == pytest.approx(1 / 30)


def test_a_fault_comes_before_its_cut() -> None:
    """Every reply has one, while it is played."""
    for cut in with_faults(plan(40, 8, random.Random(1), LANGUAGES)[0], random.Random(2)):
        assert cut.fault_at_s is not None and 0 < cut.fault_at_s <= cut.at_s
