"""Which tests may be skipped: those of `tests/skips.toml`, and those whose marker says why."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

LIST = Path(__file__).parent.parent / "tests" / "skips.toml"
MARKERS = {
    "gpu": "other_machine",
    "weights": "other_machine",
    "services": "optional_part",
    "browser": "optional_part",
    "kokoro": "optional_part",
}
"""Marker -> the list in which every test with it is."""


@dataclass(frozen=True, slots=True)
class AllowedSkips:
    """Names of tests, `PATH::FUNCTION`, and of files that are skipped as a whole, `PATH`.

    Attributes:
        optional_part: what needs a part that no package index has; a command installs it.
        other_machine: what needs another machine: a GPU, say, or another Python.
    """

    optional_part: frozenset[str]
    other_machine: frozenset[str]

    @classmethod
    def read(cls) -> Self:
        lists = tomllib.loads(LIST.read_text(encoding="utf-8"))
        return cls(frozenset(lists["optional_part"]), frozenset(lists["other_machine"]))

    def objection(self, node: pytest.Item | pytest.Collector, *, complete: bool) -> str | None:
        """Return why a test or a file must not be skipped, or None if it may."""
        name = name_of(node)
        declared = {where for marker, where in MARKERS.items() if node.get_closest_marker(marker)}
        if name in self.other_machine or "other_machine" in declared:
            return None
        if name not in self.optional_part and "optional_part" not in declared:
            return f"skipped, and {name} is not in tests/{LIST.name}"
        return "skipped with --complete, though a command installs the part" if complete else None


def name_of(node: pytest.Item | pytest.Collector) -> str:
    """Return the name of a test, without its parameters, or of a file."""
    path = node.path.relative_to(node.config.rootpath).as_posix()
    return f"{path}::{node.originalname}" if isinstance(node, pytest.Function) else path


def refuse_skip(report: pytest.TestReport | pytest.CollectReport, objection: str | None) -> None:
    if objection is not None:
        report.outcome = "failed"
        report.longrepr = f"{objection}: {report.longrepr}"
