"""Every entry of the list of tests that may be skipped is a test."""

import ast
from pathlib import Path

from testbed.skips import AllowedSkips

ROOT = Path(__file__).parents[1]


def test_every_entry_is_a_test() -> None:
    """An entry that outlives its test would allow another one of the name."""
    skips = AllowedSkips.read()
    for entry in skips.optional_part | skips.other_machine:
        path, _, function = entry.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert function in {getattr(node, "name", None) for node in tree.body}, entry
