"""Measures the history after a barge-in where only this project's server can be put.

    python -m benchmarks.bargein --host livekit|pipecat

runs the sessions of `voiceagent-tts bench bargein`, eight at once, with slow engines, killed ones,
later word times, and other adapters with the same server. The truth is exact: the played audio is
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

from benchmarks.bargein.conditions import MAIN, Condition, ServerSpec, conditions_for
from benchmarks.bargein.other_work import busy_loops
from benchmarks.bargein.report import Result, complaints_about, markdown_of, plot, table_of
from benchmarks.bargein.truth import heard_of, read_speeches
from benchmarks.bargein.voices import service_of
from benchmarks.common.report import percentiles, provenance, publish
from testbed.faults import kill_engine
from voiceagent_tts.client import DEFAULT_PATH
from voiceagent_tts.plugins.bench.bargein.heard import Heard, heard_in
from voiceagent_tts.plugins.bench.bargein.judge import Judge, Recording
from voiceagent_tts.plugins.bench.bargein.pool import Conversation, SessionPool
from voiceagent_tts.plugins.bench.bargein.run import user_speech
from voiceagent_tts.plugins.bench.bargein.session import Call, Host, Reply
from voiceagent_tts.plugins.bench.own_server import own_server
from voiceagent_tts.plugins.demo.demo_server import ServerProcess

_VOICE = "default"
_SLOT_POLL_S = 0.005
_QWEN3_ROWS = 12
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
    voice: str


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
            arguments, voice = [], _VOICE
            if spec.engine == "qwen3":
                arguments, voice = _tiny_model(Path(folder, "model"))
            log = self._log_folder / "bargein-server.log"
            environment = spec.environment(truth)
            program = "testbed.throttled_server"
            async with own_server(
                *arguments, log=log, environment=environment, module=program
            ) as server:
                yield TruthServer(server, truth, voice)


def _tiny_model(folder: Path) -> tuple[list[str], str]:
    """Command-line arguments and the voice of a server with a random model, which needs torch."""
    from benchmarks.bargein.tiny_model import VOICE, write_tiny_model

    write_tiny_model(folder)
    rows = str(_QWEN3_ROWS)
    return ["--engine", "qwen3", "--model", str(folder), "--rows", rows], VOICE


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
    slots = _SlotWatch(running.server.url)
    watching = asyncio.create_task(slots.run()) if condition.sessions == 1 else None
    with busy_loops(condition.busy_loops):
        conversations = await pool.talk(call, condition.plans(rng), show)
    facts = await _metrics(running.server.url)
    if watching is not None:
        watching.cancel()
        facts |= slots.freed(conversations)
    replies = [reply for conversation in conversations for reply in conversation.replies]
    audible = [reply for reply in replies if reply.played]
    if condition.server.engine != "qwen3":
        speeches = await asyncio.to_thread(read_speeches, running.truth)
        heard = [heard_of(reply.cut.text, reply.played, speeches) for reply in audible]
        facts |= _judged(audible, heard)
    else:  # its engine has no truth but the server's own word times
        heard = [heard_in(reply.words, reply.played_samples) for reply in audible]
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
    async with httpx.AsyncClient(base_url=_http_url(url)) as http:
        figures = _read_metrics((await http.get("/metrics")).text)
    names = ("tts_ws_accepted_total", "tts_contexts_active", "tts_worker_restarts")
    return {name: figures[name] for name in names}


def _http_url(url: str) -> str:
    return url.removesuffix(DEFAULT_PATH).replace("ws://", "http://")


def _read_metrics(text: str) -> dict[str, float]:
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


class _SlotWatch:
    """When the server's rows were free, as `/metrics` shows it."""

    def __init__(self, url: str) -> None:
        self._url = _http_url(url)
        self._seen: list[tuple[float, float]] = []  # (time.time(), rows used)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with httpx.AsyncClient(base_url=self._url) as http:
            while True:
                figures = _read_metrics((await http.get("/metrics")).text)
                self._seen.append((time.time(), figures["tts_slots_used"]))
                await asyncio.sleep(_SLOT_POLL_S)

    def freed(self, conversations: Sequence[Conversation]) -> dict[str, Any]:
        """How long after each interruption the row was free; of those that it had one."""
        replies = [reply for conversation in conversations for reply in conversation.replies]
        waits_ms: list[float] = []
        for reply in replies:
            after = [(at, used) for at, used in self._seen if at >= reply.interrupted_at]
            if after and after[0][1] > 0:
                free_at = next((at for at, used in after if used == 0), after[-1][0])
                waits_ms.append(1000 * (free_at - reply.interrupted_at))
        named = {f"rows_free_{rank}": v for rank, v in percentiles(waits_ms or [0.0]).items()}
        return {"rows_held": len(waits_ms), **named}


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
    kind = condition.voice_kind
    service = service_of(kind, host, running.server.url, running.voice, condition.max_lead_s)
    kill = functools.partial(kill_engine, running.server.pid) if condition.kills_engine else None
    return Call(service, user_pcm, fault=kill, uses_words=kind != "option off")


def main(
    host: Annotated[Host, typer.Option(help="Agent framework.")],
    quick: Annotated[bool, typer.Option(help="Fewer conditions, one cut per session.")] = False,
    only: Annotated[str, typer.Option(help="Only conditions whose names contain this.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the moments of the cuts.")] = 1,
    markdown: Annotated[bool, typer.Option(help="Also print the table as markdown.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for server logs.")] = Path("out"),
    results_folder: Annotated[
        Path, typer.Option("--results", help="Folder for figures and plot.")
    ] = Path("benchmarks/results"),
) -> None:
    """Interrupt an agent's replies, and compare its history with the words that were heard."""
    origin = provenance()
    conditions = conditions_for(host, is_quick=quick, only=only)
    if not conditions:
        raise typer.BadParameter(f"expected a part of a condition's name, got {only!r}")
    results = asyncio.run(run(host, conditions, seed, out, Console(stderr=True)))
    console = Console()
    console = Console(width=max(_TABLE_WIDTH, console.width))
    console.print(table_of(host, results))
    for complaint in complaints_about(results):
        console.print(f"[yellow]{complaint}[/]", highlight=False)
    if markdown:
        print(markdown_of(results))
    plot(host, results, results_folder / f"bargein_{host}.png")
    figures = {result.name: result.figures for result in results}
    main_figures = figures.get(MAIN, results[0].figures)
    summary = {"host": host, **{name: main_figures.get(name) for name in _SUMMARY}}
    publish({**summary, **origin, "conditions": figures}, results_folder / f"bargein_{host}.json")
