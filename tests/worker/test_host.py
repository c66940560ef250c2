"""The process around an engine: what it does before the first context."""

import subprocess
import sys

_PROGRAM = """
import gc
import sys

from voiceagent_tts.worker import host


class Engine:
    rows_used, metrics = 0, {}

    @property
    def capabilities(self):
        return {}

    def step(self):
        print(gc.get_freeze_count(), flush=True)
        raise SystemExit

    def close(self):
        pass


host.wire.encode = lambda event: [b""]
host.run("inproc://nowhere", lambda inbox, outbox: Engine())
"""


def test_no_collection_visits_what_was_loaded() -> None:
    """Before its first step a worker freezes the objects of its engine and of its modules."""
    told = subprocess.run(
        [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, capture_output=True, text=True
    )
    assert not told.stderr
    assert int(told.stdout) > 10_000
