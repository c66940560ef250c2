"""Which property tests a commit chooses for more examples."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from testbed.examples import NOT_QUICK, is_left_out


def property_test(number: int, *markers: str) -> Any:
    """A property test, as pytest collects it."""
    return SimpleNamespace(
        nodeid=f"tests/test_it.py::test_{number}[parameter]",
        obj=SimpleNamespace(is_hypothesis_test=True),
        get_closest_marker=lambda marker: marker in markers or None,
    )


def test_a_commit_chooses_a_fifth_and_other_commits_others() -> None:
    """After some commits every test was chosen; one commit chooses the same tests again."""
    tests = [property_test(number) for number in range(500)]
    chosen = [
        {test.nodeid for test in tests if not is_left_out(test, commit)}
        for commit in map(str, range(40))
    ]
    assert all(70 < len(each) < 140 for each in chosen)
    assert set().union(*chosen) == {test.nodeid for test in tests}
    assert chosen[0] == {test.nodeid for test in tests if not is_left_out(test, "0")}


def test_only_what_the_quick_run_has_tried_is_left_out() -> None:
    """Tests that are no property tests, or that `make test` leaves out, always run."""
    slow = [property_test(number, "soak") for number in range(50)]
    plain = SimpleNamespace(nodeid="tests/test_it.py::test_it", obj=object())
    assert not any(is_left_out(test, "0") for test in [*slow, plain])


def test_make_test_leaves_out_these_markers() -> None:
    """The Makefile names the same markers."""
    makefile = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    (expression,) = re.findall(r"^LEFT_OUT := (.*)$", makefile, re.MULTILINE)
    assert tuple(expression.split(" or ")) == NOT_QUICK
