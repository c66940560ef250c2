"""The process around an engine: what it does before the first context."""

import platform
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


_LONG_STEP = """
import sys

from voiceagent_tts.seam.events import Stats
from voiceagent_tts.worker import __main__ as program, host

beats = []


class Engine:
    rows_used, metrics, capabilities = 0, {}, {}

    def __init__(self, inbox, outbox):
        self.inbox = inbox

    def step(self):
        for _ in range(3):
            self.inbox()
        print(len(beats), flush=True)
        raise SystemExit

    def close(self):
        pass


def encode(event):
    if isinstance(event, Stats):
        beats.append(event)
    return [b""]


host.HEARTBEAT_S = 0.0
host.wire.encode = encode
program.KINDS["espeak"] = lambda options: Engine
sys.argv[1:] = ["espeak", "inproc://nowhere"]
program.main()
"""


def test_the_heart_beats_inside_of_a_step() -> None:
    told = subprocess.run(
        [sys.executable, "-c", _LONG_STEP], stdin=subprocess.PIPE, capture_output=True, text=True
    )
    assert (told.stderr, told.stdout.strip()) == ("", "3")


_IDLE = """
import sys

import psutil

from voiceagent_tts.worker import __main__ as program, host

host._IDLE_S = 0.0


class Engine:
    rows_used, metrics, capabilities = 0, {}, {}
    steps = 0

    def step(self):
        self.steps += 1
        if self.steps == 1:
            self.rows_used = 1
            self.blocks = [bytes(4_000) for _ in range(25_000)]
        else:
            self.rows_used = 0
            self.blocks = self.blocks[::100]
            print(psutil.Process().memory_info().rss // 10**6, flush=True)
        if self.steps == 3:
            raise SystemExit
        return 0.0

    def close(self):
        pass


host.wire.encode = lambda event: [b""]
program.KINDS["espeak"] = lambda options: lambda inbox, outbox: Engine()
sys.argv[1:] = ["espeak", "inproc://nowhere"]
program.main()
"""


def test_an_idle_worker_gives_back_what_a_burst_took() -> None:
    argv = [sys.executable, "-c", _IDLE]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        busy_mb, idle_mb = map(int, worker.stdout.read().split())
    assert idle_mb < busy_mb - 60 or platform.libc_ver()[0] != "glibc"


_FAULT = """
import sys

from voiceagent_tts.worker import __main__ as program, host


class Engine:
    rows_used, metrics, capabilities = 0, {}, {}

    def step(self):
        raise ValueError("a secret".upper())

    def close(self):
        pass


host.wire.encode = lambda event: [b""]
program.KINDS["espeak"] = lambda options: lambda inbox, outbox: Engine()
sys.argv[1:] = ["espeak", "inproc://nowhere"]
sys.exit(program.main())
"""


def test_a_fault_is_logged_without_its_message() -> None:
    """Which engine may have made of the text that it was to speak; its kind and place say more."""
    told = subprocess.run(
        [sys.executable, "-c", _FAULT], stdin=subprocess.PIPE, capture_output=True, text=True
    )
    assert told.returncode == 1
    assert "the engine failed with ValueError" in told.stderr and "in step" in told.stderr
    assert "A SECRET" not in told.stderr
