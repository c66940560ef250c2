"""What a server of this machine uses, in processes whose work and memory are known."""

import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from testbed.waiting import PATIENCE_S
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.callers import most_open
from voiceagent_tts.plugins.bench.usage import Meter, Usage
from voiceagent_tts.plugins.bench.utterance import Request, Utterance

MIB = 2**20
PROGRAM = """
import subprocess, sys, time
kept = []
is_front = len(sys.argv) == 1
child = None
if is_front:
    child = subprocess.Popen(
        [sys.executable, "-c", sys.stdin.readline().replace("\\0", "\\n"), "child"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )
for line in sys.stdin:
    word, value = line.split()
    if word == "child-cpu":
        child.stdin.write(f"cpu {value}\\n"), child.stdout.readline()
    if word == "cpu":
        end = time.process_time() + float(value)
        while time.process_time() < end:
            pass
    if word == "memory":
        kept.append(bytearray(b"x" * (int(value) * 2**20)))
    print("done", flush=True)
"""


class Server:
    """A process with a child, both of which work and allocate as they are told."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(PROGRAM.replace("\n", "\0") + "\n")
        self.tell("child-cpu", 0)  # both run

    def tell(self, word: str, value: float) -> None:
        """Let it do something, to its end."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{word} {value}\n")
        assert self.process.stdout.readline() == "done\n"


@pytest.fixture
def server() -> Iterator[Server]:
    """A running server."""
    found = Server()
    yield found
    assert found.process.stdin is not None and found.process.stdout is not None
    found.process.stdin.close()
    found.process.wait(PATIENCE_S)
    found.process.stdout.close()


def test_cpu_is_that_of_all_processes_in_the_section(server: Server) -> None:
    """Work of both counts in the section in which it was done; the front's is also known apart."""
    meter = Meter(server.process.pid)
    server.tell("cpu", 0.5)
    meter.begin()
    server.tell("cpu", 0.3)
    server.tell("child-cpu", 0.6)
    used = meter.usage()
    assert used.front_cpu_s == pytest.approx(0.3, abs=0.1)
    assert used.server_cpu_s == pytest.approx(0.9, abs=0.15)
    began = time.process_time()
    while time.process_time() < began + 0.2:
        pass
    assert meter.usage().client_cpu_s - used.client_cpu_s == pytest.approx(0.2, abs=0.1)


def test_memory_grows_from_before_the_first_section(server: Server) -> None:
    """A server keeps what an earlier section made it allocate; the growth counts all of it."""
    meter = Meter(server.process.pid)
    for expected in (40, 80):
        meter.begin()
        server.tell("memory", 40)
        used = meter.usage()
        assert used.front_growth_bytes == pytest.approx(expected * MIB, abs=4 * MIB)
        assert used.server_growth_bytes == pytest.approx(expected * MIB, abs=4 * MIB)
    before = psutil.Process(server.process.pid).memory_info().rss
    assert used.server_peak_bytes is not None and used.server_peak_bytes > before


def test_a_process_that_is_not_there_is_refused() -> None:
    """Before anything is spoken."""
    with pytest.raises(InvalidRequestError, match="server_pid: expected a process"):
        Meter(2**22 + 1)
    assert Meter(None).usage().server_cpu_s is None


def test_figures_are_those_of_one_stream() -> None:
    """2 CPU seconds for 4 seconds of audio are half a core; 8 MiB for 4 streams are 2 each."""
    usage = Usage(1.0, 2.0, 0.5, 300 * MIB, 8 * MIB, 4 * MIB)
    assert usage.figures(4.0, 4) == {
        "server_cpu_percent": 50,
        "front_cpu_percent": 12.5,
        "client_cpu_percent": 25,
        "server_mb": 300,
        "server_mb_per_stream": 2,
        "front_mb_per_stream": 1,
    }
    assert usage.figures(0.0, 0) == {"server_mb": 300}
    assert Usage(1.0).figures(4.0, 4) == {"client_cpu_percent": 25}


def test_open_utterances_are_counted_at_the_busiest_moment() -> None:
    """One that ends when another begins was not open with it."""
    times = [(0.0, 2.0), (1.0, 3.0), (2.0, 5.0), (2.5, 2.8)]
    spoken = [Utterance(Request(""), due=due, ended=ended) for due, ended in times]
    assert most_open(spoken) == 3
    assert most_open([]) == 0
