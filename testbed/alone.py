"""Choose the tests that run with the machine to themselves, after those that run beside each other.

What plays in real time can fail because other tests were in its way: the verdict on such a test is
that of a run alone. Tests that compute have no such excuse.
"""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path

import pytest

from testbed.workers import GROUP

_MOST_FAILED = 20
"""More failures than other tests can cause on a machine that is fit for them."""

Name = tuple[str, str]
"""Module of a test and its name with parameters, as in a JUnit report."""


def to_be_judged_alone(report: Path, *, stopped_early: bool) -> frozenset[Name]:
    """Return the tests that play in real time and failed in a run beside others.

    Args:
        report: JUnit report of that run.
        stopped_early: whether a failure ended that run, so that other tests never ran.

    Raises:
        pytest.UsageError: the verdict of that run is final: another test failed, or too many did.
    """
    failed = [
        (case.get("classname", ""), case.get("name", ""))
        for case in ElementTree.parse(report).iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    suffix = f"@{GROUP}"
    final = [name for _, name in failed if not name.endswith(suffix)]
    if final or len(failed) > _MOST_FAILED or (failed and stopped_early):
        raise pytest.UsageError(f"{len(failed)} tests have failed beside others: see above")
    return frozenset((module, name.removesuffix(suffix)) for module, name in failed)


def left_out(items: Iterable[pytest.Item], failed: frozenset[Name]) -> list[pytest.Item]:
    """Return the tests that neither have the marker `alone` nor failed beside others."""
    return [
        item
        for item in items
        if item.get_closest_marker("alone") is None and _name_of(item) not in failed
    ]


def has_none(file: Path, root: Path, failed: frozenset[Name]) -> bool:
    """Whether a file has no test that runs alone; it need not be imported then."""
    module = ".".join(file.relative_to(root).with_suffix("").parts)
    return all(module != each for each, _ in failed) and "mark.alone" not in file.read_text()


def _name_of(item: pytest.Item) -> Name:
    path = item.path.relative_to(item.config.rootpath).with_suffix("")
    return ".".join(path.parts), item.name
