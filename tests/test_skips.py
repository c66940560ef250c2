"""Which tests may be skipped, and what a missing part of the machine does to a test."""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.missing import MissingPartError, require_program, skipped_if_missing
from testbed.skips import AllowedSkips

ROOT = Path(__file__).parents[1]
SKIPS = AllowedSkips(frozenset({"tests/it.py::part"}), frozenset({"tests/it.py"}))


def file(*markers: str, name: str = "it.py") -> Any:
    """A file of tests, as a skipped node has it."""
    return SimpleNamespace(
        path=ROOT / "tests" / name,
        config=SimpleNamespace(rootpath=ROOT),
        get_closest_marker=lambda marker: marker if marker in markers else None,
    )


def test_a_skip_that_is_not_in_the_list_is_named() -> None:
    """The message has what to write into the list."""
    assert SKIPS.objection(file(), complete=True) is None
    told = SKIPS.objection(file(name="new.py"), complete=False)
    assert told == "skipped, and tests/new.py is not in tests/skips.toml"


@pytest.mark.parametrize(
    ("marker", "complete", "is_allowed"),
    [("gpu", True, True), ("services", False, True), ("services", True, False)],
)
def test_a_marker_says_what_a_test_needs(marker: str, complete: bool, is_allowed: bool) -> None:
    """With `--complete` only what needs another machine may be skipped."""
    told = SKIPS.objection(file(marker, name="new.py"), complete=complete)
    assert (told is None) == is_allowed


def test_every_entry_is_a_test() -> None:
    """An entry that outlives its test would allow another one of the name."""
    skips = AllowedSkips.read()
    for entry in skips.optional_part | skips.other_machine:
        path, _, function = entry.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert function in {getattr(node, "name", None) for node in tree.body}, entry


def test_a_missing_part_skips_with_the_command_that_installs_it() -> None:
    """Other errors stay errors."""
    with pytest.raises(pytest.skip.Exception, match="apt-get install of-debian"):
        with skipped_if_missing():
            require_program("no-such-program", package="of-debian")
    with pytest.raises(ValueError), skipped_if_missing():
        raise ValueError
    assert require_program("sh").endswith("/sh")
    assert issubclass(MissingPartError, RuntimeError)
