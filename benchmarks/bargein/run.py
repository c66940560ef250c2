"""Measures the history after a barge-in where only this project's server can be put.

    python -m benchmarks.bargein --host livekit|pipecat

runs the sessions of `voiceagent-tts bench bargein`, eight at once, with slow engines, killed ones,
later word times, and other work on the machine. The truth is exact: the played audio is
located in the engine's audio (`truth`) and compared with the history (`bench.bargein.score` defines
every figure). The judge of `bench bargein` hears the same audio, and `judge_exact_pct` says how
often it comes to the same words. The summary shows the first condition.
"""

import asyncio
import contextlib
import functools
import random
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.bargein.conditions import MAIN, Condition, ServerSpec, chosen_conditions
from benchmarks.bargein.other_work import busy_loops
from benchmarks.bargein.report import Result, complaints_about, plot, table_of
from benchmarks.bargein.truth import heard_of, read_speeches
from benchmarks.common.report import percentiles, provenance, publish
from testbed.faults import kill_engine
from voiceagent_tts.client import http_address
from voiceagent_tts.plugins.bench.bargein.heard import Heard
from voiceagent_tts.plugins.bench.bargein.judge import Judge, Recording
from voiceagent_tts.plugins.bench.bargein.pool import Conversation, SessionPool
from voiceagent_tts.plugins.bench.bargein.run import host_of, user_speech
from voiceagent_tts.plugins.bench.bargein.services import own_services
from voiceagent_tts.plugins.bench.bargein.session import Call, Host, Reply
from voiceagent_tts.plugins.bench.own_server import own_server
from voiceagent_tts.plugins.bench.targets.classes import ServiceClass
from voiceagent_tts.plugins.demo.demo_server import ServerProcess

_TABLE_WIDTH = 140
_SUMMARY = (
    "cuts",
    "exact_pct",
    "within_one_pct",
    "dropped_turns",
    "unspoken_committed",
    "spoken_lost",
    "cancel_p95_ms",
    "discarded_s",
)


@dataclass(frozen=True, slots=True)
class TruthServer:
    """A running server, and the folder to which its engine writes the truth."""

    server: ServerProcess
    truth: Path


class TruthServers:
    """Runs one server at a time, and keeps it until another kind is requested."""

    def __init__(self, log_folder: Path) -> None:
        self._log_folder = log_folder
        self._spec: ServerSpec | None = None
        self._server: TruthServer | None = None
        self._stack = contextlib.AsyncExitStack()

    async def get(self, spec: ServerSpec) -> TruthServer:
        """Return the server of this kind; start it if another one runs."""
        if self._server is None or spec != self._spec:
            await self.aclose()
            self._spec = spec
            self._server = await self._stack.enter_async_context(self._serving(spec))
        return self._server

    async def aclose(self) -> None:
        """Stop the server."""
        self._server = None
        await self._stack.aclose()

    @contextlib.asynccontextmanager
    async def _serving(self, spec: ServerSpec) -> AsyncIterator[TruthServer]:
        with tempfile.TemporaryDirectory(prefix="bargein-") as folder:
            truth = Path(folder, "truth")
            truth.mkdir()
            log = self._log_folder / "bargein-server.log"
            environment = spec.environment(truth)
            program = "testbed.throttled_server"
            async with own_server(log=log, environment=environment, module=program) as server:
                yield TruthServer(server, truth)


async def measure(
    condition: Condition,
    running: TruthServer,
    pool: SessionPool,
    call: Call,
    rng: random.Random,
    show: Any,
) -> Result:
    """Measure one condition."""
    began = time.monotonic()
    with busy_loops(condition.busy_loops):
        conversations = await pool.talk(call, condition.plans(rng), show)
    facts = await _metrics(running.server.url)
    replies = [reply for conversation in conversations for reply in conversation.replies]
    audible = [reply for reply in replies if reply.played]
    speeches = await asyncio.to_thread(read_speeches, running.truth)
    heard = [heard_of(reply.cut.text, reply.played, speeches) for reply in audible]
    facts |= _judged(audible, heard)
    outcomes = tuple(reply.outcome(of) for reply, of in zip(audible, heard, strict=True))
    facts |= _noise(conversations) | {
        "planned": condition.cuts,
        "told": len(replies),
        "silent_turns": sum(not reply.played for reply in replies),
        "not_cut": sum(not reply.was_interrupted for reply in replies),
        "broken_off": [c.error for c in conversations if c.error],
        "took_s": round(time.monotonic() - began, 1),
    }
    return Result(condition.name, outcomes, facts)


def _judged(replies: Sequence[Reply], truths: Sequence[Heard]) -> dict[str, float | None]:
    """How often the judge of `bench bargein` hears what was heard."""
    recordings = [
        Recording(reply.cut.language, reply.cut.language, reply.cut.text, reply.played)
        for reply in replies
    ]
    judge = Judge()
    judge.learn(recordings)
    differences = [
        len(judge.heard(recording).heard) - len(truth.heard)
        for recording, truth in zip(recordings, truths, strict=True)
    ]
    count = len(differences)
    return {
        "judge_exact_pct": round(100 * differences.count(0) / count, 1) if count else None,
        "judge_within_one_pct": (
            round(100 * sum(abs(each) <= 1 for each in differences) / count, 1) if count else None
        ),
    }


def _noise(conversations: Sequence[Conversation]) -> dict[str, float]:
    """Lag of the sessions' event loops, which a busy machine adds to every error."""
    lags_ms = [1000 * lag_s for c in conversations for lag_s in c.lags_s] or [0.0]
    named = {f"loop_lag_{rank}": value for rank, value in percentiles(lags_ms).items()}
    return named | {"loop_lag_max_ms": round(max(lags_ms), 1)}


async def _metrics(url: str) -> dict[str, Any]:
    """The server's own metrics at the end of a condition."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(http_address(url, "/metrics"))).text
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    figures = {name: float(value) for name, value in lines}
    names = ("tts_ws_accepted_total", "tts_contexts_active", "tts_worker_restarts")
    return {name: figures[name] for name in names}


async def run(
    host: Host, conditions: Sequence[Condition], seed: int, out: Path, console: Console
) -> list[Result]:
    """Measure every condition, with a progress bar on `console`."""
    results: list[Result] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    servers = TruthServers(out)
    try:
        sessions = max(condition.sessions for condition in conditions)
        async with SessionPool(host, sessions) as pool:
            user_pcm = user_speech()
            with Progress(*columns, console=console) as progress:
                for condition in conditions:
                    task = progress.add_task(condition.name, total=condition.cuts)
                    running = await servers.get(condition.server)
                    call = _call(host, condition, running, user_pcm)

                    def show(done: int, task: Any = task) -> None:
                        progress.update(task, completed=done)

                    rng = random.Random(f"{seed} {condition.name}")
                    results.append(await measure(condition, running, pool, call, rng, show))
    finally:
        await servers.aclose()
    return results


def _call(host: Host, condition: Condition, running: TruthServer, user_pcm: bytes) -> Call:
    (ours,) = [each for each in own_services(running.server.url) if host_of(each) == host]
    arguments = {**ours.options.arguments, "max_lead_s": condition.max_lead_s}
    service = ServiceClass(ours.address.partition(":")[2], arguments)
    kill = functools.partial(kill_engine, running.server.pid) if condition.kills_engine else None
    return Call(service, user_pcm, fault=kill)


def main(
    host: Annotated[Host, typer.Option(help="Agent framework.")],
    quick: Annotated[bool, typer.Option(help="Fewer conditions, one cut per session.")] = False,
    only: Annotated[str, typer.Option(help="Only conditions whose names contain this.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the moments of the cuts.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for server logs.")] = Path("out"),
    results_folder: Annotated[
        Path, typer.Option("--results", help="Folder for figures and plot.")
    ] = Path("benchmarks/results"),
) -> None:
    """Interrupt an agent's replies, and compare its history with the words that were heard."""
    origin = provenance()
    conditions = chosen_conditions(is_quick=quick, only=only)
    if not conditions:
        raise typer.BadParameter(f"expected a part of a condition's name, got {only!r}")
    results = asyncio.run(run(host, conditions, seed, out, Console(stderr=True)))
    console = Console()
    console = Console(width=max(_TABLE_WIDTH, console.width))
    console.print(table_of(host, results))
    for complaint in complaints_about(results):
        console.print(f"[yellow]{complaint}[/]", highlight=False)
    plot(host, results, results_folder / f"bargein_{host}.png")
    figures = {result.name: result.figures for result in results}
    main_figures = figures.get(MAIN, results[0].figures)
    summary = {"host": host, **{name: main_figures.get(name) for name in _SUMMARY}}
    publish({**summary, **origin, "conditions": figures}, results_folder / f"bargein_{host}.json")
