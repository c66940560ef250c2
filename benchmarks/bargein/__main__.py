"""Measures the history after a barge-in where only this project's server can be put.

    python -m benchmarks.bargein --host livekit|pipecat

runs the sessions of `voiceagent-tts bench bargein`, eight at once, with slow engines, killed ones,
later word times, and other work on the machine. The truth is exact: the played audio is
located in the engine's audio (`truth`) and compared with the history (`bench.bargein.score` defines
every figure). The judge of `bench bargein` hears the same audio, and `judge_exact_pct` says how
often it comes to the same words.
"""

import asyncio
import contextlib
import functools
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.bargein.conditions import Condition, chosen_conditions, kill_engine
from benchmarks.bargein.truth import heard_of, read_speeches
from benchmarks.common.report import provenance, publish
from testbed.server_process import read_metrics
from voiceagent_tts.client import http_address
from voiceagent_tts.offspring import Following
from voiceagent_tts.plugins.bench.bargein.judge import Judge, Recording
from voiceagent_tts.plugins.bench.bargein.pool import Conversation, SessionPool
from voiceagent_tts.plugins.bench.bargein.report import section_of, table_of, warnings_of
from voiceagent_tts.plugins.bench.bargein.run import host_of, shown, user_speech
from voiceagent_tts.plugins.bench.bargein.services import own_services
from voiceagent_tts.plugins.bench.bargein.session import Call, Host, Outcome
from voiceagent_tts.plugins.bench.document import flat
from voiceagent_tts.plugins.bench.own_server import own_server
from voiceagent_tts.plugins.bench.run import counting_progress
from voiceagent_tts.plugins.bench.targets.classes import ServiceClass
from voiceagent_tts.plugins.demo.demo_server import ServerProcess

_TABLE_WIDTH = 140
_METRICS = ("tts_ws_accepted_total", "tts_contexts_active", "tts_worker_restarts")
"""Of the server, at the end of a condition."""
_MOST_UNKNOWN_S = 0.5
"""Unknown audio that is not reported: transports fill their last chunk with silence."""

Section = dict[str, Any]
"""The figures of one condition, as those of `bench bargein`."""


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Run `count` processes that never wait, within the block."""
    argv = sys.executable, "-c", "while True: pass"
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen(argv, preexec_fn=Following(os.getpid()))
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


@contextlib.asynccontextmanager
async def _serving(condition: Condition, folder: Path) -> AsyncIterator[tuple[ServerProcess, Path]]:
    """Yield a server with its log in `folder`, and the folder of what its engine has spoken."""
    with tempfile.TemporaryDirectory(prefix="bargein-") as truth:
        log, environment = folder / "bargein-server.log", condition.environment(Path(truth))
        program = "testbed.throttling"
        async with own_server(log=log, environment=environment, module=program) as server:
            yield server, Path(truth)


async def run(
    host: Host, conditions: Sequence[Condition], seed: int, out: Path, console: Console
) -> list[Section]:
    """Measure every condition, with a progress bar on `console`."""
    sections: list[Section] = []
    sessions = max(condition.together for condition in conditions)
    async with SessionPool(host, sessions) as pool:
        with counting_progress(console) as progress:
            for _, group in itertools.groupby(conditions, lambda each: each.server):
                alike = list(group)
                async with _serving(alike[0], out) as (server, truth):
                    for each in alike:
                        show = shown(progress, each.name, each.cuts)
                        plans = each.plans(random.Random(f"{seed} {each.name}"))
                        call = _call(host, each, server)
                        began = time.monotonic()
                        with busy_loops(each.busy_loops):
                            talked = await pool.talk(call, plans, show)
                        section = await asyncio.to_thread(_section, host, each, talked, truth)
                        section |= await asyncio.to_thread(_metrics, server)
                        sections.append(section | {"took_s": round(time.monotonic() - began, 1)})
    return sections


def _metrics(server: ServerProcess) -> dict[str, float]:
    metrics = read_metrics(http_address(server.url, ""))
    return {name: metrics[name] for name in _METRICS}


def _call(host: Host, condition: Condition, server: ServerProcess) -> Call:
    (ours,) = [each for each in own_services(server.url) if host_of(each) == host]
    arguments = {**ours.options.arguments, "max_lead_s": condition.max_lead_s}
    service = ServiceClass(ours.address.partition(":")[2], arguments)
    kill = functools.partial(kill_engine, server.pid) if condition.kills_engine else None
    return Call(service, user_speech(), fault=kill)


def _section(
    host: Host, condition: Condition, talked: Sequence[Conversation], truth: Path
) -> Section:
    """The figures of a condition, in which the engine has spoken what is in the folder `truth`."""
    speeches = read_speeches(truth)
    outcomes = [
        reply.outcome(heard_of(reply.cut.text, reply.played, speeches))
        for conversation in talked
        for reply in conversation.replies
        if reply.played
    ]
    section = section_of(host, condition.name, condition.cuts, outcomes, talked)
    return flat(section) | _judged(outcomes)


def _judged(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    """How often the judge of `bench bargein` hears what was heard."""
    recordings = [
        Recording(reply.cut.language, reply.cut.language, reply.cut.text, reply.played)
        for reply in (outcome.reply for outcome in outcomes)
    ]
    judge = Judge()
    judge.learn(recordings)
    off = [
        abs(len(judge.heard(recording).heard) - len(outcome.heard.heard))
        for recording, outcome in zip(recordings, outcomes, strict=True)
    ]
    return {
        name: round(100 * sum(each <= most for each in off) / len(off), 1) if off else None
        for name, most in (("judge_exact_pct", 0), ("judge_within_one_pct", 1))
    }


def complaints_about(sections: Sequence[Section]) -> Iterator[str]:
    """What makes figures doubtful, in sentences."""
    yield from warnings_of(sections)
    for section in sections:
        if section["unknown_s"] > _MOST_UNKNOWN_S:
            yield f"{section['load']}: {section['unknown_s']} s of sound were not the engine's."


def main(
    host: Annotated[Host, typer.Option(help="Agent framework.")],
    quick: Annotated[bool, typer.Option(help="Fewer conditions, one cut per session.")] = False,
    only: Annotated[str, typer.Option(help="Only conditions whose names contain this.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the moments of the cuts.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for server logs.")] = Path("out"),
    results_folder: Annotated[Path, typer.Option("--results", help="Folder for figures.")] = Path(
        "benchmarks/results"
    ),
) -> None:
    """Interrupt an agent's replies, and compare its history with the words that were heard."""
    origin = provenance()
    conditions = chosen_conditions(is_quick=quick, only=only)
    if not conditions:
        raise typer.BadParameter(f"expected a part of a condition's name, got {only!r}")
    sections = asyncio.run(run(host, conditions, seed, out, Console(stderr=True)))
    console = Console()
    console.width = max(_TABLE_WIDTH, console.width)
    console.print(table_of(sections))
    for complaint in complaints_about(sections):
        console.print(complaint, style="yellow", highlight=False)
    figures = {section["load"]: section for section in sections}
    result = {"host": host, **origin, "conditions": figures}
    publish(result, results_folder / f"bargein_{host}.json")


if __name__ == "__main__":
    typer.run(main)
