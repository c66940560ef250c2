"""Two real replicas under a real Ray Serve: sockets through its proxy, and a crash under load."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

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

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class RayProcess:
    """`serve run deploy/ray_serve.yaml`, with Ray's proxy on a port of this machine."""

    process: subprocess.Popen[bytes]
    url: str

    @property
    def websocket_url(self) -> str:
        """The address of the socket behind the proxy."""
        return f"ws{self.url.removeprefix('http')}/v1/tts/ws"

    def replicas(self) -> list[psutil.Process]:
        """Return the processes of the replicas, oldest first."""
        found = [each for each in self.children() if "ServeReplica" in _title(each)]
        return sorted(found, key=lambda each: each.create_time())

    def children(self) -> list[psutil.Process]:
        """Return all processes that Ray has started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def is_ready(self) -> bool:
        """Whether two replicas run, and one answers."""
        assert self.process.poll() is None, "Ray has ended"
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{self.url}/health/ready", timeout=5).close()
            return len(self.replicas()) == 2
        return False

    async def wait_until_ready(self) -> None:
        """Wait for the replicas; Ray takes its time."""
        async with asyncio.timeout(180):
            while not self.is_ready():
                await asyncio.sleep(0.2)

    def end(self) -> None:
        """End `serve run` as Ctrl-C does, and kill what it leaves."""
        others = self.children()
        self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.process.kill()
        self.process.wait()
        for each in others:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(others, timeout=10)


def _title(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


pytestmark = [pytest.mark.services, pytest.mark.realtime, pytest.mark.timeout(240)]

SENTENCE = "The quick brown fox jumps over the lazy dog. "
FEWEST, MOST = 6, 24


@pytest.fixture
async def ray(free_port: int) -> AsyncIterator[RayProcess]:
    """Two replicas, both up; all processes end with the test."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        config = Path(folder) / "serve.yaml"  # the paths of Ray's sockets must be short
        text = (_ROOT / "deploy" / "ray_serve.yaml").read_text().replace("0.0.0.0", "127.0.0.1")
        config.write_text(text.replace("port: 8000", f"port: {free_port}"))
        settings = {
            "RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0",
            "VOICEAGENT_TTS_ALLOW_ANONYMOUS": "true", "VOICEAGENT_TTS_ENGINE": "espeak",
        }  # fmt: skip
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("serve")), "run", str(config)],
            cwd=_ROOT,
            env=os.environ | settings,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ray = RayProcess(process, f"http://127.0.0.1:{free_port}")
        try:
            await ray.wait_until_ready()
            yield ray
        finally:
            ray.end()


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
    await ray.wait_until_ready()
