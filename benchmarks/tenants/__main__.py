"""What does one tenant feel of another that attacks the server they share?

For each attack a server starts, with a key for the victim and one for the attacker (`contexts=20`).
The victim speaks eight turns at the same time, again and again, first alone, then beside the
attacker, which is a process of its own. Figures are those of the victim at its client, and of the
server: its longest stall, and its memory during the attack and some time after.

    python -m benchmarks.tenants

Everything shares the processors of one machine: what an attacker's own process computes delays the
victim too. `alone` is measured beside nothing.
"""

import asyncio
import contextlib
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from benchmarks.common.report import percentiles, provenance, publish
from benchmarks.tenants.attacks import ATTACKS, CONTEXTS, run_attack
from testbed.server_process import ServerProcess, serving
from voiceagent_tts.access.keys import KeyDocument, NewKey, Scope, make_key
from voiceagent_tts.client import TTSClient
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.settings.access import Quota

_TURNS_AT_ONCE = 8
_TEXT = "Your table for four is booked for eight on Friday, on the terrace if the weather holds. "
_BEGIN_S = 1.0
"""Time for an attack to begin, and for a server to be itself."""


@dataclass(slots=True)
class Felt:
    """What a victim felt: the time to its first audio in each turn, and the turns that failed."""

    first_audio_s: list[float] = field(default_factory=list[float])
    failed: int = 0


async def _turn(url: str, key: str, felt: Felt) -> None:
    """Speak one turn on a socket of its own, as a call does."""
    try:
        async with asyncio.timeout(20), TTSClient(url, api_key=key) as client:
            began = time.perf_counter()
            context = await client.open(language="en")
            await context.send_text(_TEXT)
            await context.end()
            is_first = True
            async for event in context:
                if is_first and isinstance(event, ClientAudio):
                    is_first = False
                    felt.first_audio_s.append(time.perf_counter() - began)
            felt.failed += is_first
    except Exception:  # whatever it was, the listener has not heard the turn
        felt.failed += 1


async def _speak(url: str, key: str, seconds: float) -> Felt:
    """Speak turns for some time, eight at the same time."""
    felt, end = Felt(), time.perf_counter() + seconds

    async def call() -> None:
        while time.perf_counter() < end:
            await _turn(url, key, felt)

    await asyncio.gather(*(call() for _ in range(_TURNS_AT_ONCE)))
    return felt


@contextlib.contextmanager
def _attacking(name: str, url: str, key: str) -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(
        target=run_attack, args=(name, url, key), daemon=True
    )
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _rss_mb(server: ServerProcess) -> float:
    """Memory of the server and its engine."""
    process = psutil.Process(server.process.pid)
    return sum(each.memory_info().rss for each in (process, *server.worker_processes())) / 1e6


async def _most_rss_mb(server: ServerProcess, most: list[float]) -> None:
    while True:
        most[0] = max(most[0], _rss_mb(server))
        await asyncio.sleep(0.1)


async def measure(name: str, seconds: float, settle_s: float) -> dict[str, Any]:
    """Figures of one attack."""
    victim = make_key("victim", frozenset({Scope.SPEAK}), Quota())
    attacker = make_key("attacker", frozenset({Scope.SPEAK}), Quota(contexts=CONTEXTS))
    admin = make_key("admin", frozenset({Scope.ADMIN}), Quota())
    with _server(victim, attacker, admin) as server:
        await asyncio.sleep(_BEGIN_S)
        alone = await _speak(server.url, victim.secret, seconds)
        before_mb = _rss_mb(server)
        with _attacking(name, server.url, attacker.secret):
            await asyncio.sleep(_BEGIN_S)
            most = [before_mb]
            watching = asyncio.create_task(_most_rss_mb(server, most))
            felt = await _speak(server.url, victim.secret, seconds)
            watching.cancel()
        stall_s = _stall_s(server, admin)
        await asyncio.sleep(settle_s)
        after_mb = _rss_mb(server)
    beside, before = (
        percentiles([1000 * each for each in times or [float("nan")]], digits=1)["p95_ms"]
        for times in (felt.first_audio_s, alone.first_audio_s)
    )
    return {
        "turns": len(felt.first_audio_s) + felt.failed,
        "failed": felt.failed,
        "alone_p95_ms": before,
        "p95_ms": beside,
        "longest_stall_ms": round(1000 * stall_s, 1),
        "rss_mb": {"before": round(before_mb), "most": round(most[0]), "after": round(after_mb)},
    }


@contextlib.contextmanager
def _server(*keys: NewKey) -> Iterator[ServerProcess]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys.json"
        path.write_text(KeyDocument(keys=tuple(each.key for each in keys)).dump())
        log = Path(folder) / "log"
        mark = str(Path(folder) / "watermark.keys")
        with serving(log=log, keys=str(path), watermark_key_file=mark) as server:
            yield server


def _stall_s(server: ServerProcess, admin: NewKey) -> float:
    """The longest stall of the server's event loop in the last minute."""
    import httpx

    headers = {"Authorization": f"Bearer {admin.secret}"}
    text = httpx.get(f"{server.url}/metrics", headers=headers, timeout=60).text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#")
    return float(lines.get("tts_event_loop_longest_stall_seconds", "nan"))


def main(
    attacks: Annotated[str, typer.Option(help="Names, separated by commas.")] = ",".join(
        name.replace(",", ";") for name in ATTACKS
    ),
    seconds: Annotated[float, typer.Option(help="Length of an attack.")] = 15.0,
    settle_s: Annotated[float, typer.Option(help="Time after it, before memory is read.")] = 60.0,
) -> None:
    """Measure each attack; the last line of the output is one JSON object."""
    names = [name.replace(";", ",") for name in attacks.split(",")]
    results: dict[str, Any] = {}
    for name in names:
        results[name] = asyncio.run(measure(name, seconds, settle_s))
        print(name, results[name], flush=True)
    publish({"attacks": results, **provenance()})


if __name__ == "__main__":
    typer.run(main)
