"""How much the measurement itself adds: measures of a scripted server, minus its script.

The server runs in a process of its own, so that client and server share no event loop.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from voiceagent_tts.bench.callers import Callers, Section
from voiceagent_tts.bench.loads import Load, Style
from voiceagent_tts.bench.machine import provenance
from voiceagent_tts.bench.measures import values_of
from voiceagent_tts.bench.scripted_server import Script, ScriptedServer, Step
from voiceagent_tts.bench.statistics import percentiles
from voiceagent_tts.bench.targets.addresses import TargetAddress
from voiceagent_tts.bench.targets.target import Options
from voiceagent_tts.bench.texts import Text

_FRAME_SAMPLES, _FRAME_S = 1_920, 0.08
_FRAMES = 12
_STALLED_FROM, _STALL_S = 6, 0.2
SCRIPT = Script(
    tuple(
        Step(
            0.1 + index * _FRAME_S / 2 + (_STALL_S * 4 if index >= _STALLED_FROM else 0),
            silent_samples=1_200 if index == 0 else 0,
            samples=_FRAME_SAMPLES - (1_200 if index == 0 else 0),
            words_ms=(int(80 * index),),
        )
        for index in range(_FRAMES)
    ),
    end_s=1.5,
)
"""Frames at twice the speed of playback, with a stall that its listener hears."""
TRUTH_MS = {
    "first_byte_ms": 100.0,
    "audible_ms": 150.0,
    "underrun_ms": 1000
    * (SCRIPT.steps[_STALLED_FROM].at_s - SCRIPT.steps[0].at_s - _STALLED_FROM * _FRAME_S),
    "e2e_ms": 1500.0,
}
_WARM_UP_S = 2.0
_DOORS = ("ws", "http", "cartesia", "vllm")


@contextlib.asynccontextmanager
async def scripted_process() -> AsyncIterator[dict[str, str]]:
    """Run the scripted server as a process; yields its addresses."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "voiceagent_tts.bench.self_check",
        stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stdin is not None
    try:
        yield json.loads(await process.stdout.readline())
    finally:
        process.stdin.close()
        await process.wait()


async def errors_ms(addresses: dict[str, str], streams: int, seconds: float) -> dict[str, Any]:
    """Measured minus true, in milliseconds, by door and measure, with `streams` in the mean."""
    found: dict[str, Any] = {}
    for door in _DOORS:
        callers = Callers(TargetAddress.parse(addresses[door], Options()).open())
        try:
            # Callers of a closed loop would move in step, and all events would coincide.
            load = Load(per_s=streams / SCRIPT.end_s) if streams > 1 else Load(together=1)
            section = Section(load, seconds, _WARM_UP_S if streams > 1 else 0.0)
            style = Style([Text("en", "short", "One two three.")])
            values = values_of((await callers.run(section, style)).utterances)
        finally:
            await callers.aclose()
        found[door] = {
            name: [value - truth for value in values[name]] for name, truth in TRUTH_MS.items()
        }
    return found


async def measure(streams: Sequence[int], seconds: float) -> dict[str, Any]:
    """Errors at each number of streams: p50 and p95 in milliseconds, by door and measure."""
    figures: dict[str, Any] = {}
    async with scripted_process() as addresses:
        for count in streams:
            errors = await errors_ms(addresses, count, seconds)
            figures[str(count)] = {
                door: {name: _figures(of) for name, of in by_name.items()}
                for door, by_name in errors.items()
            }
    return figures


def _figures(errors: Sequence[float]) -> dict[str, float]:
    ranks = percentiles(errors)
    return {"n": len(errors), "p50": round(ranks[50].value, 3), "p95": round(ranks[95].value, 3)}


def run_check(streams: Sequence[int], seconds: float) -> None:
    """Measure, print a table, and end with one JSON object."""
    origin = provenance()
    figures = asyncio.run(measure(streams, seconds))
    table = Table(title="measured minus true, in ms: p50 / p95", box=None)
    for heading in ("streams", "door", *TRUTH_MS):
        table.add_column(heading, justify="right")
    for count, doors in figures.items():
        for door, by_name in doors.items():
            cells = (f"{of['p50']:.2f} / {of['p95']:.2f}" for of in by_name.values())
            table.add_row(count, door, *cells)
    Console().print(table)
    sys.stdout.write(json.dumps({"kind": "check", **origin, "errors_ms": figures}) + "\n")


async def _serve() -> None:
    """Serve until standard input ends; the first line of standard output has the addresses."""
    loop = asyncio.get_running_loop()
    async with ScriptedServer(SCRIPT).running() as server:
        sys.stdout.write(json.dumps(server.addresses) + "\n")
        sys.stdout.flush()
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
