"""What does one tenant feel of another that attacks the server they share?

For each attack a server starts, with a key for the victim and one for the attacker (`contexts=20`).
The victim speaks eight turns at the same time, again and again, first alone, then beside the
attacker, which is a process of its own. Figures are those of the victim at its client, and of the
server: its longest stall, its most memory, and what it keeps: its memory before the attack and a
minute after it, while other attacks are measured, without its cache of phrases. Then each attack
goes through HAProxy to two replicas, and what counts is whether the victim was ever refused because
a replica passed for dead. `missed` names what is beyond its limit, and each attack that was none:
whose messages the server did not answer as it does to that attack. Then the exit status is 1, and
the same lines are on standard error.

    python -m benchmarks.tenants            # 11 minutes on two cores; needs Debian's haproxy
    python -m benchmarks.tenants --quick    # one minute: some of the attacks

Everything shares the processors of one machine: what an attacker's own process computes delays the
victim too. `alone` is measured beside nothing.
"""

import asyncio
import contextlib
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import typer

from benchmarks.common.report import provenance, publish
from benchmarks.tenants.attacks import ATTACKS, CONTEXTS, run_attack
from testbed.haproxy_process import HAProxyProcess
from testbed.ports import free_ports
from testbed.server_process import ServerProcess, read_metrics, serving
from voiceagent_tts.client import TTSClient
from voiceagent_tts.plugins.keys.keys import KeyDocument, Scope, make_key
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.settings.access import Quota

_HAPROXY = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"
_TURNS_AT_ONCE = 8
_TEXT = "Your table for four is booked for eight on Friday, on the terrace if the weather holds. "
_BEGIN_S = 1.0
"""Time for an attack to begin, and for a server to be itself."""
_PATIENCE_S = 60.0
_QUICK = ("respelled words", "files, aac", "idle sockets", "uploads", "cuts", "compression bombs")
_MOST_STALL_MS = 50.0
_MOST_RSS_MB = 400.0
_MOST_GROWTH = 1.2

VICTIM = make_key("victim", frozenset({Scope.SPEAK}), Quota())
ATTACKER = make_key("attacker", frozenset({Scope.SPEAK}), Quota(contexts=CONTEXTS))
ADMIN = make_key("admin", frozenset({Scope.ADMIN}), Quota())


# The victim.


@dataclass(slots=True)
class Felt:
    """What a victim felt: the time to its first audio in each turn, and why turns failed."""

    first_audio_s: list[float] = field(default_factory=list[float])
    failures: Counter[str] = field(default_factory=Counter[str])

    @property
    def p95_ms(self) -> float:
        """95 % of the first audio came within this time."""
        return round(1000 * float(np.percentile(self.first_audio_s or [math.nan], 95)), 1)

    def figures(self) -> dict[str, Any]:
        """For the report."""
        failed = self.failures.total()
        turns = len(self.first_audio_s) + failed
        return {"turns": turns, "failed": failed, "why": dict(self.failures), "p95_ms": self.p95_ms}


async def _turn(url: str, felt: Felt, text: str = _TEXT, language: str = "en") -> None:
    """Speak one turn on a socket of its own, as a call does."""
    try:
        async with asyncio.timeout(20), TTSClient(url, api_key=VICTIM.secret) as client:
            began = time.perf_counter()
            context = await client.open(language=language)
            await context.send_text(text)
            await context.end()
            is_first = True
            async for event in context:
                if is_first and isinstance(event, ClientAudio):
                    is_first = False
                    felt.first_audio_s.append(time.perf_counter() - began)
            felt.failures["no audio"] += is_first
    except Exception as error:  # whatever it was, the listener has not heard the turn
        felt.failures[getattr(error, "code", "") or type(error).__name__] += 1


async def _speak(url: str, seconds: float) -> Felt:
    """Speak turns for some time, eight at the same time."""
    felt, end = Felt(), time.perf_counter() + seconds

    async def call() -> None:
        while time.perf_counter() < end:
            await _turn(url, felt)

    await asyncio.gather(*(call() for _ in range(_TURNS_AT_ONCE)))
    felt.failures += Counter()  # drops zeros
    return felt


@contextlib.contextmanager
def _attacking(name: str, url: str) -> Iterator[Callable[[], bool]]:
    """Attack within the block; yields whether the server answers as it does to the attack.

    The attack goes on meanwhile: on a busy machine an answer may take longer than the measurement.
    """
    spawning = multiprocessing.get_context("spawn")
    begun, proved = spawning.Event(), spawning.Event()
    given = name, url, ATTACKER.secret, os.getpid(), begun, proved
    process = spawning.Process(target=run_attack, args=given, daemon=True)
    process.start()
    try:
        begun.wait(_PATIENCE_S)
        time.sleep(_BEGIN_S)
        yield lambda: proved.wait(_PATIENCE_S)
    finally:
        process.kill()
        process.join()


# The server.


def _rss_mb(server: ServerProcess) -> float:
    process = psutil.Process(server.process.pid)
    return sum(each.memory_info().rss for each in (process, *server.worker_processes())) / 1e6


async def _most_rss_mb(server: ServerProcess, most: list[float]) -> None:
    while True:
        with contextlib.suppress(psutil.NoSuchProcess):  # a decoder has just ended
            most[0] = max(most[0], _rss_mb(server))
        await asyncio.sleep(0.1)


@contextlib.contextmanager
def _server(keys: Path, **settings: str) -> Iterator[ServerProcess]:
    log = keys.parent / f"log-{time.monotonic_ns()}"
    mark = str(keys.parent / "watermark.keys")
    with serving(log=log, keys=str(keys), watermark_key_file=mark, **settings) as server:
        yield server


def _stall_s(server: ServerProcess) -> float:
    """The longest stall of the server's event loop in the last minute."""
    return read_metrics(server.url, ADMIN.secret)["tts_event_loop_longest_stall_seconds"]


def _kept_mb(server: ServerProcess) -> float:
    """Memory without the cache of phrases, which is bounded, and kept on purpose."""
    cache_bytes = read_metrics(server.url, ADMIN.secret).get("tts_cache_bytes", 0.0)
    return _rss_mb(server) - cache_bytes / 1e6


# One server for each attack.


async def _measure(name: str, server: ServerProcess, seconds: float) -> dict[str, Any]:
    await asyncio.sleep(_BEGIN_S)
    await _turn(server.url, Felt(), "こんにちは。", "ja")  # its dictionary has 70 MB, and stays
    alone = await _speak(server.url, seconds / 2)
    stall_s, kept_mb = _stall_s(server), _kept_mb(server)
    most = [0.0]
    with _attacking(name, server.url) as is_proved:
        watching = asyncio.create_task(_most_rss_mb(server, most))
        felt = await _speak(server.url, seconds)
        watching.cancel()
        longest_stall_s = _stall_s(server)  # of the last minute, so before the proof
        proved = is_proved()
    return felt.figures() | {
        "proved": proved,
        "alone_p95_ms": alone.p95_ms,
        "alone_stall_ms": round(1000 * stall_s, 1),
        "longest_stall_ms": round(1000 * longest_stall_s, 1),
        "rss_mb": {"kept_before": round(kept_mb), "most": round(most[0])},
    }


# Two replicas for all attacks.


@contextlib.contextmanager
def _fleet(keys: Path) -> Iterator[HAProxyProcess]:
    with contextlib.ExitStack() as stack:
        ports = free_ports(6)
        replicas = [(ports[2], ports[3]), (ports[4], ports[5])]
        for port, agent_port in replicas:
            settings = {"port": str(port), "slots_port": str(agent_port)}
            stack.enter_context(_server(keys, trusted_proxies="127.0.0.1", **settings))
        haproxy = HAProxyProcess(_HAPROXY, (ports[0], ports[1]), replicas)
        stack.enter_context(haproxy)
        haproxy.wait_for("UP", "UP")
        yield haproxy


async def _through(name: str, haproxy: HAProxyProcess, seconds: float) -> dict[str, Any]:
    down = 0

    async def watch() -> None:
        nonlocal down
        while True:
            statuses = await asyncio.to_thread(haproxy.statuses)
            down += any(status.startswith("DOWN") for status in statuses)
            await asyncio.sleep(0.25)

    with _attacking(name, haproxy.url) as is_proved:
        watching = asyncio.create_task(watch())
        felt = await _speak(haproxy.url, seconds)
        watching.cancel()
        return felt.figures() | {"proved": is_proved(), "replica_down": down}


# All of them.


async def measure_all(
    names: list[str], keys: Path, seconds: float, settle_s: float, has_replicas: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures of each attack on a server of its own, and on two replicas.

    A server settles while others are measured.
    """
    alone: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    measuring = asyncio.Lock()

    async def settle(name: str, server: ServerProcess, stack: contextlib.ExitStack) -> None:
        await asyncio.sleep(settle_s)
        async with measuring:
            alone[name]["rss_mb"]["kept_after"] = round(_kept_mb(server))
            stack.close()
        print(name, alone[name], flush=True)

    async with asyncio.TaskGroup() as settling:
        for name in names:
            stack = contextlib.ExitStack()
            async with measuring:
                server = stack.enter_context(_server(keys))
                alone[name] = await _measure(name, server, seconds)
            settling.create_task(settle(name, server, stack))
        if has_replicas:
            with _fleet(keys) as haproxy:
                for name in names:
                    async with measuring:
                        shared[name] = await _through(name, haproxy, seconds / 2)
                    print("two replicas:", name, shared[name], flush=True)
    return alone, shared


# The report.


def _missed(attacks: dict[str, Any], replicas: dict[str, Any]) -> list[str]:
    """What is beyond its limit."""
    missed: list[str] = []
    for name, each in attacks.items():
        most_ms = 2 * each["alone_p95_ms"] + 30
        rss_mb = each["rss_mb"]
        for what, value, limit in (
            ("failed", each["failed"], 0),
            ("p95_ms", each["p95_ms"], most_ms),
            ("longest_stall_ms", each["longest_stall_ms"], _MOST_STALL_MS),
            ("rss_mb", rss_mb["most"], _MOST_RSS_MB),
            ("rss_mb kept", rss_mb["kept_after"], _MOST_GROWTH * rss_mb["kept_before"]),
        ):
            if not value <= limit:
                missed.append(f"{name}: {what} {value}, limit {limit:g}")
        if not each["proved"]:
            missed.append(f"{name}: no answer of the kind that proves the attack")
    for name, each in replicas.items():
        for what in ("failed", "replica_down"):
            if each[what]:
                missed.append(f"two replicas: {name}: {what} {each[what]}, limit 0")
    return missed


def _report(attacks: dict[str, Any], replicas: dict[str, Any]) -> None:
    """Publish all figures; ends the program with status 1 if one is beyond its limit."""
    missed = _missed(attacks, replicas)
    publish({"attacks": attacks, "replicas": replicas, "missed": missed, **provenance()})
    if missed:
        sys.exit("\n".join(missed))


def main(
    attacks: Annotated[
        str | None, typer.Option(help="Names, separated by semicolons. Default: all.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Length of an attack.")] = 4.0,
    settle_s: Annotated[float, typer.Option(help="Time after it, before memory is read.")] = 60.0,
    replicas: Annotated[bool, typer.Option(help="Also attack two replicas.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="Some attacks, for a short time.")] = False,
) -> None:
    """Measure each attack; the last line of the output is one JSON object.

    The status is 1 if a figure is beyond its limit.
    """
    names = attacks.split(";") if attacks else list(_QUICK if quick else ATTACKS)
    if quick:
        seconds, settle_s = min(seconds, 2.0), min(settle_s, 10.0)
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.json"
        document = KeyDocument(keys=tuple(each.key for each in (VICTIM, ATTACKER, ADMIN)))
        keys.write_text(document.dump())
        figures = asyncio.run(measure_all(names, keys, seconds, settle_s, replicas))
    _report(*figures)


if __name__ == "__main__":
    typer.run(main)
