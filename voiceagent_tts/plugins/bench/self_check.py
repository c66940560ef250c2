"""How much the measurement itself adds: measures of a scripted server, minus what it did.

The server runs in a process of its own, so that client and server share no event loop. Both read
the clock of the machine: the truth is when the server had the text and when it sent, so that a
server which is late behind its script does not count against the client.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.bench.callers import Callers, Section
from voiceagent_tts.plugins.bench.listener import play
from voiceagent_tts.plugins.bench.loads import Load, Style
from voiceagent_tts.plugins.bench.machine import provenance
from voiceagent_tts.plugins.bench.measures import values_of
from voiceagent_tts.plugins.bench.scripted_server import Played, Script, ScriptedServer, Step
from voiceagent_tts.plugins.bench.statistics import percentiles
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.target import Options
from voiceagent_tts.plugins.bench.texts import Text
from voiceagent_tts.plugins.bench.utterance import Utterance

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
MEASURES = ("first_byte_ms", "audible_ms", "underrun_ms", "e2e_ms")
Truth = Callable[[], Awaitable[Mapping[str, Played]]]
"""Asks the server what it did."""
_WARM_UP_S = 2.0
_LONGEST_LINE = 1 << 26
_ENDPOINTS = ("ws", "http", "cartesia", "vllm")
_TEXTS = 2_000
"""More than a section speaks: each text tells an utterance from the others."""


@contextlib.asynccontextmanager
async def scripted_process() -> AsyncIterator[tuple[dict[str, str], Truth]]:
    """Run the scripted server as a process; yields its addresses, and its truth."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "voiceagent_tts.plugins.bench.self_check",
        stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.PIPE, limit=_LONGEST_LINE,
    )  # fmt: skip
    stdout, stdin = process.stdout, process.stdin
    assert stdout is not None and stdin is not None

    async def truth() -> dict[str, Played]:
        stdin.write(b"\n")
        played = json.loads(await stdout.readline())
        return {text: Played(**times) for text, times in played.items()}

    try:
        yield json.loads(await stdout.readline()), truth
    finally:
        stdin.close()
        await process.wait()


async def errors_ms(
    addresses: dict[str, str], truth: Truth, streams: int, seconds: float
) -> dict[str, Any]:
    """Measured minus true, in milliseconds, by endpoint and measure, with `streams` in the mean."""
    found: dict[str, Any] = {}
    for endpoint in _ENDPOINTS:
        callers = Callers(TargetAddress.parse(addresses[endpoint], Options()).open())
        try:
            # Callers of a closed loop would move in step, and all events would coincide.
            load = Load(per_s=streams / SCRIPT.end_s) if streams > 1 else Load(together=1)
            section = Section(load, seconds, _WARM_UP_S if streams > 1 else 0.0)
            texts = [
                Text("en", "short", f"{endpoint} {streams} {index}.") for index in range(_TEXTS)
            ]
            spoken = (await callers.run(section, Style(texts))).utterances
        finally:
            await callers.aclose()
        played = await truth()
        errors = [_errors_ms(each, played[each.request.text]) for each in spoken]
        found[endpoint] = {name: [each[name] for each in errors] for name in MEASURES}
    return found


def _errors_ms(utterance: Utterance, played: Played) -> dict[str, float]:
    """Measured minus true, by measure."""
    steps = SCRIPT.steps
    first_s = played.sent[0] - played.began
    sizes = [step.silent_samples + step.samples for step in steps]
    true_s = {
        "first_byte_ms": first_s,
        "audible_ms": first_s + steps[0].silent_samples / SAMPLE_RATE_HZ,
        "underrun_ms": play(played.sent, sizes).underrun_s,
        "e2e_ms": played.ended - played.began,
    }
    values = values_of([utterance])
    return {name: values[name][0] - 1000 * of_s for name, of_s in true_s.items()}


async def measure(streams: Sequence[int], seconds: float) -> dict[str, Any]:
    """Errors at each number of streams: p50 and p95 in milliseconds, by endpoint and measure."""
    figures: dict[str, Any] = {}
    async with scripted_process() as (addresses, truth):
        for count in streams:
            errors = await errors_ms(addresses, truth, count, seconds)
            figures[str(count)] = {
                endpoint: {name: _figures(of) for name, of in by_name.items()}
                for endpoint, by_name in errors.items()
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
    for heading in ("streams", "endpoint", *MEASURES):
        table.add_column(heading, justify="right")
    for count, endpoints in figures.items():
        for endpoint, by_name in endpoints.items():
            cells = (f"{of['p50']:.2f} / {of['p95']:.2f}" for of in by_name.values())
            table.add_row(count, endpoint, *cells)
    Console().print(table)
    sys.stdout.write(json.dumps({"kind": "check", **origin, "errors_ms": figures}) + "\n")


async def _serve() -> None:
    """Serve until standard input ends.

    The first line of standard output has the addresses; each line of standard input is answered
    with what the server has done since the last.
    """
    loop = asyncio.get_running_loop()
    async with ScriptedServer(SCRIPT).running() as server:
        _write_line(server.addresses)
        while await loop.run_in_executor(None, sys.stdin.readline):
            _write_line({text: asdict(played) for text, played in server.played.items()})
            server.played.clear()


def _write_line(content: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_serve())
