"""Run `voiceagent-tts serve` as a process, and observe it from outside."""

import contextlib
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from testbed.throttled import VARIABLE
from testbed.waiting import PATIENCE_S, wait_until
from voiceagent_tts.offspring import Following


class ServerProcess:
    """A server process and its address."""

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
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=PATIENCE_S) as response:
            text = response.read().decode()
        values = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        assert values, f"no metric {name}"
        return sum(map(float, values))

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
