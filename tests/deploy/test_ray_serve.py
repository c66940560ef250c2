"""Two real replicas under a real Ray Serve: sockets through its proxy, and a crash under load."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import httpx
import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from testbed.listening import first_audio, rest_of
from testbed.waiting import PATIENCE_S
from voiceagent_tts.client import TTSClient
from voiceagent_tts.client.context import ClientContext
from voiceagent_tts.errors import VoiceAgentError

_PATIENCE_S = 90.0
_ROOT = Path(__file__).parents[2]
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


pytestmark = [pytest.mark.services, pytest.mark.realtime, pytest.mark.timeout(240)]

SENTENCE = "The quick brown fox jumps over the lazy dog. "
FEWEST, MOST = 6, 24


@pytest.fixture
def ray(free_port: int) -> Iterator[RayProcess]:
    """Two replicas, both up; all processes end with the test."""
    with RayProcess(free_port, allow_anonymous="true", engine="espeak") as ray:
        yield ray


async def sockets_of_one(http: httpx.AsyncClient) -> float:
    """The open sockets of the replica that Ray has chosen for this request."""
    text = (await http.get("/metrics")).text
    found = re.search(r"^tts_ws_connections (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


async def speak_again(client: TTSClient) -> float:
    """Open a context as often as needed; return the seconds until its first audio."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(VoiceAgentError):
            context = await first_audio(client, SENTENCE, 0.5)
            wait_s = time.monotonic() - began
            assert await rest_of(context) == "complete"
            return wait_s
        assert time.monotonic() - began < PATIENCE_S, "no context is served"


async def test_a_replica_that_is_killed_takes_only_its_own_listeners_with_it(
    ray: RayProcess,
) -> None:
    """Others hear all of their text; the clients that lost theirs are served by the other one.

    Before that, refusals and errors come through Ray's proxy as they are.
    """
    async with contextlib.AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=ray.url, timeout=20))
        speech = await http.post("/v1/audio/speech", json={"input": "Hi.", "voice": "nobody"})
        assert (speech.status_code, speech.json()["error"]["code"]) == (400, "invalid_voice")
        with pytest.raises(InvalidStatus) as refused:
            await connect(ray.websocket_url.replace("/v1/tts", "/nothing"))
        assert refused.value.response.status_code == 404
        clients: list[TTSClient] = []
        contexts: list[ClientContext] = []
        while len(clients) < FEWEST or not 0 < await sockets_of_one(http) < len(clients):
            assert len(clients) < MOST, "Ray gives all sockets to one replica"
            clients.append(await stack.enter_async_context(TTSClient(ray.websocket_url)))
            contexts.append(await first_audio(clients[-1], SENTENCE * 3, 0.5))
        listening = [asyncio.create_task(rest_of(context)) for context in contexts]
        os.kill(ray.replicas()[0].pid, signal.SIGKILL)
        done, _ = await asyncio.wait(listening, return_when=asyncio.FIRST_COMPLETED)
        lost = [
            client
            for client, task in zip(clients, listening, strict=True)
            if task in done
        ]  # fmt: skip
        assert {task.result() for task in done} == {"lost"}
        waits_s = await asyncio.gather(*map(speak_again, lost))
        ends = Counter(await asyncio.gather(*listening))
    print(f"{ends}, heard again within {max(waits_s):.3f} s")  # docs/scale.md has the figure
    assert set(ends) == {"complete", "lost"} and ends["complete"] > 0
    ray.wait_for_replicas(2)
