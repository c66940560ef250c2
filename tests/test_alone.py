"""Which tests run alone after the others, and which failures are final."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.alone import has_none, left_out, to_be_judged_alone

ROOT = Path(__file__).parents[1]


def report(folder: Path, *failed: str, outcome: str = "failure") -> Path:
    """A report with a test that passed and some that failed."""
    cases = "".join(
        f'<testcase classname="tests.e2e.test_it" name="{name}"><{outcome} /></testcase>'
        for name in failed
    )
    path = folder / "report.xml"
    path.write_text(f'<t><testcase classname="tests.test_it" name="test_well" />{cases}</t>')
    return path


def collected(name: str, *markers: str) -> Any:
    """A test, as pytest collects it."""
    return SimpleNamespace(
        name=name,
        path=ROOT / "tests" / "e2e" / "test_it.py",
        config=SimpleNamespace(rootpath=ROOT),
        get_closest_marker=lambda marker: marker if marker in markers else None,
    )


@pytest.mark.parametrize("outcome", ["failure", "error"])
def test_what_plays_and_failed_runs_again_beside_what_is_marked(
    tmp_path: Path, outcome: str
) -> None:
    """A test has the name that pytest-xdist gave it less its group."""
    path = report(tmp_path, "test_late[a@b]@realtime", outcome=outcome)
    failed = to_be_judged_alone(path, stopped_early=False)
    tests = [collected("test_late[a@b]"), collected("test_other"), collected("test_loud", "alone")]
    assert [test.name for test in left_out(tests, failed)] == ["test_other"]


@pytest.mark.parametrize(
    ("failed", "stopped_early"),
    [
        (["test_late@realtime", "test_computes"], False),
        ([f"test_{number}@realtime" for number in range(21)], False),
        (["test_late@realtime"], True),
    ],
)
def test_other_failures_are_final(tmp_path: Path, failed: list[str], stopped_early: bool) -> None:
    """A test that computes, too many at once, and a run that ended before all tests had run."""
    with pytest.raises(pytest.UsageError, match=f"{len(failed)} tests have failed"):
        to_be_judged_alone(report(tmp_path, *failed), stopped_early=stopped_early)


def test_without_failures_only_what_is_marked_runs(tmp_path: Path) -> None:
    """Also where the first run would have ended at its first failure."""
    assert to_be_judged_alone(report(tmp_path), stopped_early=True) == frozenset()


def test_only_files_with_such_tests_are_imported(tmp_path: Path) -> None:
    """Those with the marker, and those with a failure."""
    marked, failed, other = (tmp_path / f"test_{name}.py" for name in ("marked", "failed", "other"))
    marked.write_text("@pytest.mark.alone\n")
    failed.touch()
    other.touch()
    failures = frozenset({("test_failed", "test_it")})
    left = [path for path in (marked, failed, other) if has_none(path, tmp_path, failures)]
    assert left == [other]
