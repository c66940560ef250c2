"""Run `voiceagent-tts serve` as a process, and observe it from outside."""

import contextlib
import os
import subprocess
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from testbed.throttled import VARIABLE
from testbed.waiting import PATIENCE_S, wait_until
from voiceagent_tts.offspring import Following


def read_metrics(url: str, key: str = "") -> dict[str, float]:
    """Return every metric of the server at `url`, an `http://` address, summed over its labels."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    asking = urllib.request.Request(f"{url}/metrics", headers=headers)
    with urllib.request.urlopen(asking, timeout=PATIENCE_S) as response:
        lines = response.read().decode().splitlines()
    metrics = defaultdict[str, float](float)
    for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#")):
        metrics[name.partition("{")[0]] += float(value)
    return dict(metrics)


class ServerProcess:
    def __init__(self, process: "subprocess.Popen[bytes]", ready_line: str) -> None:
        word, _, self.websocket_url = ready_line.strip().partition(" ")
        assert word == "ready", f"expected `ready URL`, got {ready_line!r}"
        self.process = process
        self.url = self.websocket_url.replace("ws", "http", 1).removesuffix("/v1/tts/ws")

    def terminate(self) -> None:
        self.process.terminate()

    def worker_processes(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def metric(self, name: str) -> float:
        return read_metrics(self.url)[name]

    def wait_until_idle(self) -> None:
        used = ("tts_contexts_active", "tts_slots_used")
        wait_until(lambda: not any(map(self.metric, used)), "no context or row leaks")


StartProcess = Callable[..., ServerProcess]


@contextlib.contextmanager
def serving(*, log: Path | None = None, **environment: str) -> Iterator[ServerProcess]:
    """Run a server as a separate process within the block, on a free port unless one is given.

    It speaks with the embedded voice unless an engine is given, whatever is on this machine.
    `throttle` has the fields of a `Throttle` as JSON, for its engines. Its standard error goes to
    the file `log`, if there is one.
    """
    port, throttle = environment.pop("port", "0"), environment.pop("throttle", "{}")
    program = "testbed.throttling" if throttle != "{}" else "voiceagent_tts"
    argv = [sys.executable, "-m", program, "serve", "--port", port]
    settings = {"VOICEAGENT_TTS_ENGINE": "espeak", VARIABLE: throttle}
    settings |= {f"VOICEAGENT_TTS_{name.upper()}": value for name, value in environment.items()}
    with contextlib.ExitStack() as stack:
        errors = None if log is None else stack.enter_context(log.open("wb"))
        process = stack.enter_context(
            subprocess.Popen(
                argv,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **settings},
                preexec_fn=Following(os.getpid()),
            )
        )
        try:
            assert process.stdout is not None
            yield ServerProcess(process, process.stdout.readline().decode())
        finally:
            process.kill()
