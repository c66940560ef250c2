"""A real HAProxy in front of servers of this machine. Needs Debian's `haproxy`."""

import csv
import os
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from testbed.missing import require_program
from testbed.waiting import PATIENCE_S, wait_until
from voiceagent_tts.offspring import Following


class HAProxyProcess:
    """HAProxy with the configuration of `deploy/`; a context manager."""

    def __init__(
        self, config: Path, ports: tuple[int, int], replicas: Sequence[tuple[int, int]]
    ) -> None:
        self._config = config
        self._statistics = f"http://127.0.0.1:{ports[1]}/;csv"
        self.url = f"http://127.0.0.1:{ports[0]}"
        self.websocket_url = f"ws://127.0.0.1:{ports[0]}/v1/tts/ws"
        self._environment = {
            "TTS_BIND": f"127.0.0.1:{ports[0]}",
            "TTS_STATS": f"127.0.0.1:{ports[1]}",
        }
        for number, (port, agent_port) in enumerate(replicas, start=1):
            self._environment[f"TTS_{number}"] = f"127.0.0.1:{port}"
            self._environment[f"TTS_{number}_AGENT"] = str(agent_port)

    def replicas(self) -> dict[str, dict[str, str]]:
        """Return HAProxy's statistics of each replica, such as `status` and `scur`."""
        with urllib.request.urlopen(self._statistics, timeout=PATIENCE_S) as response:
            rows = csv.DictReader(response.read().decode().removeprefix("# ").splitlines())
        return {row["svname"]: row for row in rows if row["svname"].startswith("replica-")}

    def statuses(self) -> list[str]:
        return [row["status"] for row in self.replicas().values()]

    def wait_for(self, *statuses: str) -> None:
        wait_until(lambda: self.statuses() == [*statuses], f"the replicas are {statuses}")

    def __enter__(self) -> Self:
        argv = [require_program("haproxy"), "-db", "-f", str(self._config)]
        self._process = subprocess.Popen(
            argv, env={**os.environ, **self._environment}, preexec_fn=Following(os.getpid())
        )
        wait_until(self._answers, "HAProxy starts")
        return self

    def _answers(self) -> bool:
        assert self._process.poll() is None, "HAProxy has ended"
        try:
            return bool(self.replicas())
        except OSError:
            return False

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
