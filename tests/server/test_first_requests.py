"""A process that serves for the first time keeps no other client waiting for what it loads."""

import json
import subprocess
import sys

from testbed.first_requests import kinds
from testbed.waiting import PATIENCE_S

MOST_CALLS = 40_000
"""As in tests/synthesizer/test_bounded_work.py. When FastAPI built the routes in the first request
for one of them, and PyAV was loaded on the event loop, they were 52,000 and more."""
MOST_BYTES = 30_000
"""Bytes of modules that the event loop may load for a request: about a millisecond. They were
4,700,000 for the first text with an abbreviation, and as many for the first changed speed."""


_PROGRAM = "from testbed.first_requests import measure; measure()"


def test_no_kind_of_request_loads_libraries_on_the_event_loop() -> None:
    """They are loaded at the start, or in a thread; no first request makes a long turn."""
    argv = [sys.executable, "-W", "ignore", "-c", _PROGRAM]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=8 * PATIENCE_S)
    lines = (line.partition("first: ") for line in result.stdout.splitlines())
    costs = [json.loads(line) for start, mark, line in lines if mark and not start]
    assert len(costs) == len(kinds()), result.stderr
    assert all(answered for _, answered, _, _ in costs), costs
    assert not [
        (name, calls, loaded)
        for name, _, calls, loaded in costs
        if calls > MOST_CALLS or sum(loaded.values()) > MOST_BYTES
    ]
