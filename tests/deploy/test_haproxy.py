"""Two real replicas with one Redis behind a real HAProxy: a crash, a rolling restart, free rows."""

import asyncio
import contextlib
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from testbed.haproxy_process import HAProxyProcess
from testbed.listening import first_audio, rest_of
from testbed.ports import free_ports
from testbed.redis_process import RedisProcess
from testbed.server_process import ServerProcess, serving
from testbed.waiting import until
from voiceagent_tts.client import TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.plugins.tls.certificates import certificate_of

pytestmark = [pytest.mark.services, pytest.mark.realtime]

CONFIG = Path(__file__).parent.parent.parent / "deploy" / "haproxy.cfg"
BALANCER = CONFIG.parent / "helm" / "templates" / "balancer.yaml"
SENTENCE = "The quick brown fox jumps over the lazy dog. "
LISTENERS = 8


@dataclass(slots=True)
class Fleet:
    """Two replicas behind HAProxy, with shared limits."""

    haproxy: HAProxyProcess
    redis: RedisProcess
    ports: list[tuple[int, int]]
    servers: list[ServerProcess] = field(default_factory=list)
    stacks: list[contextlib.ExitStack] = field(default_factory=list)

    def start(self, number: int) -> None:
        """Start a replica, the first time or again."""
        stack = contextlib.ExitStack()
        port, slots_port = self.ports[number]
        server = stack.enter_context(
            serving(port=str(port), slots_port=str(slots_port), redis=self.redis.url,
                    ip_limits="contexts=100")
        )  # fmt: skip
        self.servers[number : number + 1] = [server]
        self.stacks[number : number + 1] = [stack]


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Two replicas, both up; all processes end with the test."""
    front, statistics, redis_port, *rest = free_ports(7)
    ports = [(rest[0], rest[1]), (rest[2], rest[3])]
    haproxy = HAProxyProcess(CONFIG, (front, statistics), ports)
    with RedisProcess(redis_port) as redis:
        fleet = Fleet(haproxy, redis, ports)
        try:
            fleet.start(0)
            fleet.start(1)
            with haproxy:
                haproxy.wait_for("UP", "UP")
                yield fleet
        finally:
            for stack in fleet.stacks:
                stack.close()


@pytest.fixture
def behind_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of one server with jobs behind HAProxy that ends TLS."""
    monkeypatch.setenv("HOME", str(tmp_path))
    front, secure, statistics, redis_port, port, agent = free_ports(6)
    made = certificate_of(Settings(ssl_self_signed=True, host="proxy.test", allow_anonymous=True))
    assert made is not None
    bind = 'bind "${TTS_BIND}"\n'
    text = CONFIG.read_text()
    assert bind in text
    config = tmp_path / "haproxy.cfg"
    config.write_text(
        text.replace(bind, f"{bind}    bind 127.0.0.1:{secure} ssl crt {made.certfile}\n")
    )
    with RedisProcess(redis_port) as redis, contextlib.ExitStack() as stack:
        stack.enter_context(
            serving(port=str(port), slots_port=str(agent), redis=redis.url,
                    jobs_storage=str(tmp_path))
        )  # fmt: skip
        haproxy = HAProxyProcess(config, (front, statistics), [(port, agent)] * 2)
        with haproxy:
            haproxy.wait_for("UP", "UP")
            yield f"https://127.0.0.1:{secure}"


async def test_links_to_jobs_begin_as_the_address_of_the_proxy(behind_tls: str) -> None:
    """A client that came by HTTPS is sent to HTTPS, whatever it claims itself."""
    async with httpx.AsyncClient(base_url=behind_tls, verify=False, timeout=20) as http:
        body = {"input": "Hello there.", "language": "en", "response_format": "wav"}
        claim = {"X-Forwarded-Proto": "http"}
        job = (await http.post("/v1/audio/jobs", json=body, headers=claim)).json()
        while job["status"] not in ("done", "failed"):
            job = (await http.get(f"/v1/audio/jobs/{job['id']}")).json()
        assert job["result"]["url"].startswith(f"{behind_tls}/v1/audio/jobs/files/")
        assert (await http.get(job["result"]["url"])).content[:4] == b"RIFF"


def of_chart(ingress: str) -> str:
    """The rules of the chart's balancer that say whose headers count."""
    rules = re.findall(
        r"^ *((?:acl|http-request) .*(?:ingress|Forwarded).*)", BALANCER.read_text(), re.M
    )
    return "\n    ".join(rules).replace("{{ .Values.balancer.ingress }}", ingress)


DROP = "http-request del-header X-Forwarded-For"


@pytest.mark.parametrize(
    ("rules", "is_believed"),
    [(DROP, False), (of_chart("192.0.2.1"), False), (of_chart("192.0.2.1 127.0.0.0/8"), True)],
    ids=["compose", "chart", "chart behind an ingress"],
)
async def test_no_client_says_where_it_is(rules: str, is_believed: bool, tmp_path: Path) -> None:
    """Its address is in a network of trusted proxies, as the gateway of Docker's network is.

    Its limit is that of its own address, and not of one that it names; an ingress may name others.
    """
    text = CONFIG.read_text()
    assert DROP in text
    config = tmp_path / "haproxy.cfg"
    config.write_text(text.replace(DROP, rules))
    front, statistics, port, agent = free_ports(4)
    with serving(port=str(port), slots_port=str(agent), ip_limits="chars_per_minute=20",
                 trusted_proxies="127.0.0.0/8"):  # fmt: skip
        with HAProxyProcess(config, (front, statistics), [(port, agent)] * 2) as haproxy:
            haproxy.wait_for("UP", "UP")
            async with httpx.AsyncClient(base_url=haproxy.url, timeout=20) as http:
                body = {"input": "Fifteen letters", "response_format": "pcm"}
                statuses = [
                    (await http.post("/v1/audio/speech", json=body, headers=claim)).status_code
                    for claim in ({"X-Forwarded-For": f"203.0.113.{number}"} for number in (1, 2))
                ]
    assert statuses == [200, 200 if is_believed else 429]


PATHS_OF_METRICS = (
    "/metrics", "/%6detrics", "/%6D%65trics", "//metrics", "/metrics/", "/metrics?a=b",
    "/%2fmetrics", "http://127.0.0.1/metrics", "/metrics%3F", "/metrics;a", "/./metrics",
    "/%256detrics", "/metrics%00", "/x/../metrics", "/METRICS", "/metrics#a",
)  # fmt: skip


async def test_no_spelling_of_metrics_passes_the_proxy() -> None:
    """The replicas decode paths; what they take for `/metrics` stays inside."""
    (rule,) = re.findall(r"http-request deny .*", CONFIG.read_text())
    assert rule in BALANCER.read_text(), "the chart's balancer has the same rule"
    front, statistics, port, agent = free_ports(4)
    with serving(port=str(port), slots_port=str(agent)) as server:
        with HAProxyProcess(CONFIG, (front, statistics), [(port, agent)] * 2) as haproxy:
            haproxy.wait_for("UP", "UP")
            for path in PATHS_OF_METRICS:
                answer = await raw_get(front, path)
                assert b"tts_contexts_active" not in answer, path
                assert answer.split()[1] in (b"400", b"404"), (path, answer[:40])
            assert b"tts_contexts_active" in await raw_get(port, "/%6detrics"), "a replica answers"
        assert server.process.poll() is None


async def raw_get(port: int, path: str) -> bytes:
    """Return the answer to a request whose path is sent as it is."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_silent_client_is_sent_away(tmp_path: Path) -> None:
    """One that sends half of a request loses its connection; here after 100 ms, not 10 s."""
    line = "timeout http-request 10s"
    text = CONFIG.read_text()
    assert line in text and line in BALANCER.read_text()
    quick = tmp_path / "haproxy.cfg"
    quick.write_text(text.replace(line, "timeout http-request 100ms"))
    front, statistics, *unused = free_ports(4)
    with HAProxyProcess(quick, (front, statistics), [(port, port) for port in unused]):
        for half in (b"", b"GET /v1/tts/ws HTTP/1.1\r\nHost:"):
            reader, writer = await asyncio.open_connection("127.0.0.1", front)
            writer.write(half)
            async with asyncio.timeout(30):  # `timeout client` is 60 s
                answer = await reader.read()
            assert not half or answer.startswith(b"HTTP/1.1 408"), answer
            writer.close()


def test_a_probe_has_longer_than_its_interval() -> None:
    """Without `timeout check`, a replica that takes more than 0.5 s for one probe is down."""
    for config in (CONFIG, BALANCER):
        text = config.read_text()
        (timeout_s,) = re.findall(r"^ *timeout check (\d+)s\b", text, re.MULTILINE)
        (interval_ms,) = re.findall(r"\bcheck inter (\d+)ms\b", text)
        assert 1000 * int(timeout_s) > 2 * int(interval_ms)


async def test_a_replica_that_is_killed_takes_only_its_own_listeners_with_it(fleet: Fleet) -> None:
    """Half of the listeners lose their context and get a new one at once; the others hear all."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(TTSClient(fleet.haproxy.websocket_url))
            for _ in range(LISTENERS)
        ]
        contexts = [await first_audio(client, SENTENCE * 2, 0.5) for client in clients]
        shares = [row["scur"] for row in fleet.haproxy.replicas().values()]
        assert shares == [str(LISTENERS // 2)] * 2, "leastconn shares the sockets evenly"
        os.kill(fleet.servers[0].process.pid, signal.SIGKILL)
        listening = [asyncio.create_task(rest_of(context)) for context in contexts]
        done, _ = await asyncio.wait(listening, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result() for task in done} == {"lost"}
        lost = [
            client
            for client, task in zip(clients, listening, strict=True)
            if task in done
        ]  # fmt: skip
        again = await asyncio.gather(*(first_audio(client, SENTENCE, 0.0) for client in lost))
        assert await asyncio.gather(*map(rest_of, again)) == ["complete"] * len(lost)
        ends = Counter(await asyncio.gather(*listening))
    assert ends == {"complete": LISTENERS // 2, "lost": LISTENERS // 2}
    assert fleet.servers[1].metric("tts_audio_underrun_seconds_sum") < 0.5
    fleet.haproxy.wait_for("DOWN", "UP")


async def speak_on(url: str, is_over: asyncio.Event, ends: Counter[str]) -> None:
    """Speak turn after turn with one client, and count how turns that were heard have ended."""
    async with TTSClient(url) as client:
        while not is_over.is_set():
            try:
                context = await first_audio(client, SENTENCE, 1.0)
            except VoiceAgentError as error:
                assert error.is_retryable, error
                ends["again, before any sound"] += 1
                continue
            ends[await rest_of(context)] += 1


async def test_a_rolling_restart_truncates_no_turn(fleet: Fleet) -> None:
    """Each replica drains, ends with status 0, and comes back, while listeners hear every turn."""
    is_over, ends = asyncio.Event(), Counter[str]()
    speaking = [
        asyncio.create_task(speak_on(fleet.haproxy.websocket_url, is_over, ends))
        for _ in range(LISTENERS)
    ]
    for number in range(2):
        before = ends["complete"]
        await until(lambda before=before: ends["complete"] > before + 4, "turns are spoken")
        fleet.servers[number].terminate()
        assert await asyncio.to_thread(fleet.servers[number].process.wait, 60) == 0
        await asyncio.to_thread(fleet.start, number)
        await asyncio.to_thread(fleet.haproxy.wait_for, "UP", "UP")
    is_over.set()
    await asyncio.gather(*speaking)
    assert ends["complete"] > 10
    assert ends.keys() <= {"complete", "again, before any sound"}, ends


@pytest.mark.parametrize("config", [CONFIG, BALANCER], ids=["compose", "chart"])
def test_a_job_is_never_sent_twice(config: Path) -> None:
    """Others are, of which a replica has spoken nothing; for that, a request is read first."""
    text = config.read_text()
    assert "http-request disable-l7-retry if METH_POST { path /v1/audio/jobs }" in text
    assert "retry-on conn-failure 503" in text and "option http-buffer-request" in text


async def test_what_one_replica_refuses_another_one_speaks(tmp_path: Path) -> None:
    """A replica drains, and the proxy does not know yet: no client is told so."""
    line = "check inter 500ms fall 2 rise 1 agent-check"
    text = CONFIG.read_text()
    assert line in text
    config = tmp_path / "haproxy.cfg"
    config.write_text(text.replace(line, "check inter 1h"))
    front, statistics, *ports = free_ports(4)
    with serving(port=str(ports[0])) as draining, serving(port=str(ports[1])):
        replicas = [(port, port) for port in ports]
        with HAProxyProcess(config, (front, statistics), replicas) as haproxy:
            async with TTSClient(draining.websocket_url) as client:
                context = await first_audio(client, SENTENCE * 20, 0.3)
                draining.terminate()
                await until(lambda: not draining.metric("tts_ready"), "it drains")
                for number in range(4):
                    await speak_both_ways(haproxy, f"Number {number}.")
                first, second = haproxy.replicas().values()
                await context.cancel()
    assert (first["hrsp_2xx"], second["hrsp_2xx"]) == ("0", "4")
    assert int(first["wretr"]) > 0


async def speak_both_ways(haproxy: HAProxyProcess, text: str) -> None:
    async with httpx.AsyncClient(base_url=haproxy.url, timeout=20) as http:
        body = {"input": text, "response_format": "pcm"}
        assert (await http.post("/v1/audio/speech", json=body)).status_code == 200
    async with TTSClient(haproxy.websocket_url) as client:
        await client.connect()


async def test_free_rows_are_published_and_a_drain_takes_a_replica_out(fleet: Fleet) -> None:
    """The header counts the rows, the weight follows them, and `/metrics` is not for the world."""
    for server in fleet.servers:
        server.wait_until_idle()  # a replica that nobody uses speaks to itself now and then
    async with httpx.AsyncClient(base_url=fleet.haproxy.url) as http:
        ready = await http.get("/health/ready")
        assert ready.headers["X-TTS-Slots-Free"] == "512"
        assert (await http.get("/metrics")).status_code == 404
        async with TTSClient(fleet.haproxy.websocket_url) as client:
            context, *others = [await first_audio(client, SENTENCE * 20, 0.3) for _ in range(6)]
            await until(
                lambda: {server.metric("tts_slots_used") for server in fleet.servers} == {0, 6},
                "one replica speaks all six",
            )
            speaking = max(fleet.servers, key=lambda server: server.metric("tts_slots_used"))
            async with httpx.AsyncClient(base_url=speaking.url) as direct:
                header = (await direct.get("/health/ready")).headers["X-TTS-Slots-Free"]
            assert header == "506"
            await until(
                lambda: (
                    {row["weight"] for row in fleet.haproxy.replicas().values()} == {"99", "100"}
                ),
                "the weights follow the free rows",
            )
            speaking.terminate()
            index = fleet.servers.index(speaking)
            await until(
                lambda: fleet.haproxy.statuses()[index] not in ("UP", "UP 1/2"), "it is taken out"
            )
            assert (await http.get("/health/ready")).status_code == 200
            for each in (context, *others):
                await each.cancel()
