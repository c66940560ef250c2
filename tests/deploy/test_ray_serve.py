"""Two real replicas under a real Ray Serve: sockets through its proxy, and a crash under load."""

import asyncio
import contextlib
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from testbed.listening import first_audio, rest_of
from testbed.ray_process import RayProcess
from testbed.waiting import PATIENCE_S
from voiceagent_tts.client import TTSClient
from voiceagent_tts.client.context import ClientContext
from voiceagent_tts.errors import VoiceAgentError

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]

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
