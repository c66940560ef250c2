"""The tables of `scripts/test-times`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.cli.test_say" name="test_a[x|y]" time="2.5"><properties>
  <property name="cpu_s" value="0.5" /><property name="cpu_s" value="1.0" />
  <property name="fixture server" value="0.75" /></properties></testcase>
<testcase classname="tests.cli.deep.test_b" name="test_c" time="1.0"><properties>
  <property name="fixture server" value="0.5" /></properties></testcase>
<testcase classname="tests.test_core" name="test_d" time="0.25" />
</testsuite></testsuites>"""


def test_seconds_are_told_by_step_folder_test_and_fixture(tmp_path: Path) -> None:
    """The longest come first; setup and call of a test are one figure."""
    (tmp_path / "steps.txt").write_text("65 setup\n1234 the tests\n")
    (tmp_path / "test.xml").write_text(REPORT)
    shown = subprocess.run(
        [sys.executable, ROOT / "scripts" / "test-times", tmp_path],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert "| the tests | 1,234 |" in shown
    folders = shown.index("| folder | tests | s | CPU s |")
    assert shown[folders + 2 : folders + 5] == [
        "| cli | 2 | 4 | 2 |",
        "| . | 1 | 0 | 0 |",
        "| **all** | 3 | 4 | 2 |",
    ]
    assert "| cli/test_say::test_a[x/y] | 2.5 | 1.5 |" in shown
    assert shown[-1] == "| cli: server | 2 | 1.2 |"
