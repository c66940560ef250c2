"""The process around an engine: what it does before the first context."""

import subprocess
import sys

_PROGRAM = """
import gc
import sys

from voiceagent_tts.worker import __main__ as program, host


class Engine:
    rows_used, metrics = 0, {}

    @property
    def capabilities(self):
        return {}

    def step(self):
        print(gc.get_freeze_count(), gc.isenabled(), flush=True)
        raise SystemExit

    def close(self):
        pass


def load(options):
    print(gc.isenabled())
    return lambda inbox, outbox: Engine()


host.wire.encode = lambda event: [b""]
program.KINDS["espeak"] = load
sys.argv[1:] = ["espeak", "inproc://nowhere"]
program.main()
"""


def test_no_collection_visits_what_was_loaded() -> None:
    """Nothing is collected while an engine loads; before its first step its objects are frozen."""
    told = subprocess.run(
        [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, capture_output=True, text=True
    )
    assert not told.stderr
    while_loading, frozen, in_steps = told.stdout.split()
    assert (while_loading, in_steps) == ("False", "True")
    assert int(frozen) > 10_000
