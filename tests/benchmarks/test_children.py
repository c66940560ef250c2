"""What benchmarks start ends with them, however they end."""

import signal
from pathlib import Path

import pytest

from testbed.parents import ends_with_its_parent

STARTERS = {
    "an attacker": """
from benchmarks.tenants import __main__ as tenants
if __name__ == "__main__":
    import multiprocessing
    with tenants._attacking("cuts", "http://127.0.0.1:9"):
        tell(*(each.pid for each in multiprocessing.active_children()))
""",
    "a benchmark's process that answers": """
if __name__ == "__main__":
    import multiprocessing
    from benchmarks.engine.child import child
    with child("operator.itemgetter", "a", threads=1) as ask:
        ask(a={})
        tell(*(each.pid for each in multiprocessing.active_children()))
""",
    "other work": """
import psutil
from benchmarks.bargein.__main__ import busy_loops
with busy_loops(2):
    tell(*(each.pid for each in psutil.Process().children()))
""",
}


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("program", STARTERS.values(), ids=STARTERS)
def test_no_child_is_left(program: str, by: signal.Signals, tmp_path: Path) -> None:
    """It would compute, and attack, for ever."""
    assert ends_with_its_parent(program, by, tmp_path)
