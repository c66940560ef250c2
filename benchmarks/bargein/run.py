"""Measures whether the history after a barge-in has the words that were heard.

    python -m benchmarks.bargein --host livekit|pipecat

runs real conversations in real time, eight at once: the host's own session, its voice activity
detection on a user's audio, its synchronizer or output transport, and our adapter with a server in
a process of its own. The user interrupts after 0.2 to 3.4 s of playback, in five languages. The
played audio is located in the engine's audio (`truth`) and compared with the history (`score`
defines every figure). The summary shows the first condition; the others show slow engines, later
word times, faults, and other adapters with the same server.
"""

import asyncio
import contextlib
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

from benchmarks.bargein.conditions import (
    MAIN,
    Condition,
    ServerSpec,
    conditions_for,
)
from benchmarks.bargein.pool import Conversation, Host, SessionPool
from benchmarks.bargein.report import Result, complaints_about, markdown_of, plot, table_of
from benchmarks.bargein.score import Outcome
from benchmarks.bargein.session import Call, Spoken
from benchmarks.bargein.texts import USER_TEXT
from benchmarks.bargein.truth import Speech, heard_in, heard_of, read_speeches
from benchmarks.common.report import percentiles, provenance, publish
from voiceagent_tts.bench.own_server import OwnServer, own_server
from voiceagent_tts.client import DEFAULT_PATH, TTSClient
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.protocol.messages import AudioFormat

_ESPEAK_VOICE = "default"
_USER_RATE_HZ = 16_000
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
class Place:
    """A running server, and the folder to which its engine writes the truth."""

    server: OwnServer
    truth: Path
    voice: str

    @property
    def url(self) -> str:
        """`ws://HOST:PORT`."""
        return self.server.url.removesuffix(DEFAULT_PATH)


class Places:
    """Runs one server at a time, and keeps it until another kind is requested."""

    def __init__(self, log_folder: Path) -> None:
        self._log_folder = log_folder
        self._spec: ServerSpec | None = None
        self._place: Place | None = None
        self._stack = contextlib.AsyncExitStack()

    async def get(self, spec: ServerSpec) -> Place:
        """Return the server of this kind; start it if another one runs."""
        if self._place is None or spec != self._spec:
            await self.aclose()
            self._spec = spec
            self._place = await self._stack.enter_async_context(self._serving(spec))
        return self._place

    async def aclose(self) -> None:
        """Stop the server."""
        self._place = None
        await self._stack.aclose()

    @contextlib.asynccontextmanager
    async def _serving(self, spec: ServerSpec) -> AsyncIterator[Place]:
        with tempfile.TemporaryDirectory(prefix="bargein-") as folder:
            truth = Path(folder, "truth")
            truth.mkdir()
            arguments, voice = [], _ESPEAK_VOICE
            if spec.engine == "qwen3":
                arguments, voice = _tiny_model(Path(folder, "model"))
            log = self._log_folder / "bargein-server.log"
            environment = spec.environment(truth)
            async with own_server(*arguments, log=log, environment=environment) as server:
                yield Place(server, truth, voice)


def _tiny_model(folder: Path) -> tuple[list[str], str]:
    """Command-line arguments and the voice of a server with a random model, which needs torch."""
    from benchmarks.bargein.tiny_model import VOICE, write_tiny_model

    write_tiny_model(folder)
    rows = str(_QWEN3_ROWS)
    return ["--engine", "qwen3", "--model", str(folder), "--rows", rows], VOICE


async def user_speech(url: str) -> bytes:
    """The user's speech, as a microphone records it."""
    audio = AudioFormat(sample_rate=_USER_RATE_HZ)
    async with TTSClient(url) as client:
        events = client.say(
            USER_TEXT, voice=_ESPEAK_VOICE, language="en", audio=audio, max_lead_s=0
        )
        return b"".join([event.pcm async for event in events if isinstance(event, ClientAudio)])


async def measure(
    condition: Condition, place: Place, pool: SessionPool, call: Call, rng: random.Random, show: Any
) -> Result:
    """Measure one condition."""
    began = time.monotonic()
    slots = _SlotWatch(place.server.url)
    watching = asyncio.create_task(slots.run()) if condition.sessions == 1 else None
    conversations = await pool.talk(call, condition.plans(rng), show)
    facts = await _metrics(place.server.url)
    if watching is not None:
        watching.cancel()
        facts |= slots.freed(conversations)
    speeches = await asyncio.to_thread(read_speeches, place.truth)
    spoken = [reply for conversation in conversations for reply in conversation.spoken]
    has_truth = condition.server.engine == "espeak"
    outcomes = tuple(
        _outcome(reply, speeches if has_truth else None) for reply in spoken if reply.played
    )
    facts |= _noise(conversations) | {
        "planned": condition.cuts,
        "told": len(spoken),
        "silent_turns": sum(not reply.played for reply in spoken),
        "not_cut": sum(not reply.was_interrupted for reply in spoken),
        "broken_off": [c.error for c in conversations if c.error],
        "took_s": round(time.monotonic() - began, 1),
    }
    return Result(condition.name, outcomes, facts)


def _outcome(reply: Spoken, speeches: Sequence[Speech] | None) -> Outcome:
    """The outcome of a reply, with the words that were heard.

    Args:
        reply: result of the reply from its session.
        speeches: the engine's truth; None if only the server's own word times are known.
    """
    samples = len(reply.played) // BYTES_PER_SAMPLE
    if speeches is None:
        heard = heard_in(reply.words, samples)
    else:
        heard = heard_of(reply.cut.text, reply.played, speeches)
    return Outcome(
        language=reply.cut.language,
        text=reply.cut.text,
        committed=reply.committed,
        heard=heard,
        played_s=samples / SAMPLE_RATE_HZ,
        received_s=reply.received_s,
        cancel_ms=reply.cancel_ms,
        barge_in_ms=reply.barge_in_ms,
        dry_s=reply.dry_s,
    )


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
        spoken = [reply for conversation in conversations for reply in conversation.spoken]
        waits_ms: list[float] = []
        for reply in spoken:
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
    places = Places(out)
    try:
        sessions = max(condition.sessions for condition in conditions)
        async with SessionPool(host, sessions) as pool:
            user_pcm = await user_speech((await places.get(ServerSpec())).server.url)
            with Progress(*columns, console=console) as progress:
                for condition in conditions:
                    task = progress.add_task(condition.name, total=condition.cuts)
                    place = await places.get(condition.server)
                    call = Call(
                        place.url,
                        place.server.pid,
                        condition.voice_kind,
                        place.voice,
                        user_pcm,
                        condition.max_lead_s,
                        condition.fault,
                    )

                    def show(done: int, task: Any = task) -> None:
                        progress.update(task, completed=done)

                    rng = random.Random(f"{seed} {condition.name}")
                    results.append(await measure(condition, place, pool, call, rng, show))
    finally:
        await places.aclose()
    return results


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
