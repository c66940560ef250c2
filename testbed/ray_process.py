"""A real Ray cluster on this machine, with replicas of the server; needs `ray[serve]`."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

import psutil

_PATIENCE_S = 90.0
_ROOT = Path(__file__).parent.parent
_CONFIG = _ROOT / "deploy" / "ray_serve.yaml"


class RayProcess:
    """`serve run deploy/ray_serve.yaml` on a port of this machine; a context manager.

    Args:
        port: port of Ray's proxy.
        environment: settings of the replicas.
    """

    def __init__(self, port: int, **environment: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.websocket_url = f"ws://127.0.0.1:{port}/v1/tts/ws"
        self._port = port
        self._settings = {f"VOICEAGENT_TTS_{k.upper()}": v for k, v in environment.items()}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        folder = Path(tempfile.mkdtemp(prefix="ray"))  # its paths of sockets must be short
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        config = folder / "serve.yaml"
        text = _CONFIG.read_text().replace("0.0.0.0", "127.0.0.1")
        config.write_text(text.replace("port: 8000", f"port: {self._port}"))
        ray = {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
        self._process = subprocess.Popen(
            [str(Path(sys.executable).with_name("serve")), "run", str(config)],
            cwd=_ROOT,
            env={**os.environ, **ray, **self._settings},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._stack.callback(self._end)
        try:
            self.wait_for_replicas(2)
            self._wait_until_ready()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def replicas(self) -> list[psutil.Process]:
        """Return the processes of the replicas, oldest first."""
        found = [each for each in self._all() if "ServeReplica" in _title(each)]
        return sorted(found, key=lambda each: each.create_time())

    def wait_for_replicas(self, count: int) -> None:
        """Wait until this many run."""
        deadline = time.monotonic() + _PATIENCE_S
        while len(self.replicas()) != count:
            assert time.monotonic() < deadline, f"expected {count} replicas"
            assert self._process.poll() is None, "Ray has ended"
            time.sleep(0.1)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}/health/ready", timeout=5).close()
                return
            assert time.monotonic() < deadline, "no replica is ready"
            time.sleep(0.1)

    def _all(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self._process.pid).children(recursive=True)
        return []

    def _end(self) -> None:
        """End `serve run` as Ctrl-C does, and kill what it leaves."""
        others = self._all()
        self._process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self._process.kill()
        self._process.wait()
        for each in others:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(others, timeout=10)


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
