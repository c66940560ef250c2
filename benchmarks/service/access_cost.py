"""What does all that stands around speech cost, per context and per frame?

Two servers run in this process: a plain one, and one with a file of keys, every limit for the key
and the address, a request log, the watermark, and a cache that finds nothing; with
`--redis`, its limits are counted there. Turns
go to one and the other by turns, token by token as a language model writes, without pacing, so
that everything that delays a message shows. The figures are

- admit: the admission of one context, in the server;
- token: the charge of one token's text, in the server;
- first audio: from `context.open` to the first audio message, at the client;
- frame: from one audio message to the next, at the client;
- mark: the marking of one frame of 80 ms, in the server, and its share of real time.
"""

import asyncio
import contextlib
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import structlog
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import percentiles, provenance, publish
from voiceagent_tts.access.keys import KeyDocument, Scope, make_key
from voiceagent_tts.access.limiter import Caller
from voiceagent_tts.client import TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.core import FRAME_S, FRAME_SAMPLES
from voiceagent_tts.plugins.provenance.keys import KEY_BYTES, WatermarkKey
from voiceagent_tts.plugins.provenance.watermark import Marker
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.settings.access import Quota

_TEXT = (
    "Your table for four is booked for eight on Friday, on the terrace if the weather holds. "
    "Please tell us by noon if more of you come. We look forward to seeing you. "
)
_ENOUGH = Quota(
    contexts=10_000, contexts_per_s=100_000, chars_per_minute=10**9, audio_s_per_day=10**9
)
_WARM_UP_TURNS = 5
_ADMISSIONS = 500
_MARKED_FRAMES = 2000

Times = defaultdict[str, list[float]]


@contextlib.asynccontextmanager
async def guarded(
    folder: Path, keys: int, redis: str | None
) -> AsyncIterator[tuple[RunningServer, TTSClient]]:
    """A server with keys, limits and records, and its client."""
    made = [make_key(f"key {number}", frozenset(Scope), Quota()) for number in range(keys)]
    place = folder / "keys.json"
    place.write_text(KeyDocument(keys=tuple(each.key for each in made)).dump())
    settings = Settings(
        port=0, keys=str(place), key_limits=_ENOUGH, ip_limits=_ENOUGH, redis=redis,
        request_log=folder / "requests.jsonl",
        cache_after=10**9,
    )  # fmt: skip
    async with (
        running(settings) as server,
        TTSClient(server.websocket_url, api_key=made[-1].secret) as client,
    ):
        yield server, client


@contextlib.asynccontextmanager
async def plain() -> AsyncIterator[tuple[RunningServer, TTSClient]]:
    """A server without any of it, and its client."""
    async with (
        running(Settings(port=0, watermark=False, cache_mb=0)) as server,
        TTSClient(server.websocket_url) as client,
    ):
        yield server, client


async def take_turn(client: TTSClient, times: Times) -> None:
    """Speak one turn, and add its times in seconds."""
    began = time.perf_counter()
    context = await client.open(language="en", max_lead_s=0)
    for token in _TEXT.split(" "):
        await context.send_text(f"{token} ")
    await context.end()
    arrivals = [time.perf_counter() async for event in context if isinstance(event, ClientAudio)]
    times["first_audio"].append(arrivals[0] - began)
    times["frame"] += [late - early for early, late in pairwise(arrivals)]


async def admit(server: RunningServer, times: Times) -> None:
    """Admit and charge contexts as a socket does, and add the times in seconds."""
    limiter, key_ids = server.state.access.limiter, server.state.keys.ids
    caller = Caller("192.0.2.1", key_ids[-1] if key_ids else None)
    for _ in range(_ADMISSIONS):
        began = time.perf_counter()
        admission = await limiter.admit(caller)
        times["admit"].append(time.perf_counter() - began)
        for token in _TEXT.split(" "):
            began = time.perf_counter()
            await admission.charge(len(token) + 1)
            times["token"].append(time.perf_counter() - began)
        admission.end(10.0)
    await limiter.close()


async def measure(turns: int, keys: int, redis: str | None) -> dict[str, Times]:
    """Take turns with both servers, one after the other."""
    results: dict[str, Times] = {"plain": defaultdict(list), "guarded": defaultdict(list)}
    with tempfile.TemporaryDirectory() as folder:
        async with plain() as without, guarded(Path(folder), keys, redis) as with_:
            for number in range(-_WARM_UP_TURNS, turns):
                for name, (_, client) in (("plain", without), ("guarded", with_)):
                    await take_turn(client, results[name] if number >= 0 else defaultdict(list))
            for name, (server, _) in (("plain", without), ("guarded", with_)):
                await admit(server, results[name])
    return results


def mark_times_s(frames: int = _MARKED_FRAMES) -> list[float]:
    """Seconds to mark each of `frames` frames of noise."""
    noise = np.random.default_rng(1).integers(-8000, 8000, frames * FRAME_SAMPLES).astype("<i2")
    marker, times = Marker(WatermarkKey(bytes(KEY_BYTES))), list[float]()
    for frame in np.split(noise, frames):
        began = time.perf_counter()
        marker.push(frame.tobytes())
        times.append(time.perf_counter() - began)
    return times


def summarize(results: dict[str, Times]) -> dict[str, Any]:
    """Figures of both servers in milliseconds, and what the guarded one adds."""
    figures: dict[str, Any] = {}
    for name in ("admit", "token", "first_audio", "frame"):
        without, with_ = [
            percentiles([1000 * second for second in results[server][name]], digits=3)
            for server in ("plain", "guarded")
        ]
        added = {key: round(with_[key] - without[key], 3) for key in without}
        figures[name] = {"plain": without, "guarded": with_, "added": added}
    return figures


def show(figures: dict[str, Any]) -> None:
    """Print the figures as a table."""
    table = Table("", "", "p50 ms", "p95 ms", "p99 ms")
    for name, servers in figures.items():
        for server, row in servers.items():
            table.add_row(name, server, *(f"{value:.3f}" for value in row.values()))
    Console(stderr=True).print(table)


def main(
    turns: Annotated[int, typer.Option(min=2, help="Turns with each server.")] = 200,
    keys: Annotated[int, typer.Option(min=1, help="Keys of the guarded server.")] = 100,
    redis: Annotated[
        str | None, typer.Option(help="Redis address that counts limits. [default: memory]")
    ] = None,
) -> None:
    """Measure what keys, limits and records add to each context and frame."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    figures = summarize(asyncio.run(measure(turns, keys, redis)))
    show(figures)
    mark_s = mark_times_s()
    mark = percentiles([1000 * second for second in mark_s], digits=3)
    mark["rtf"] = round(float(np.mean(mark_s)) / FRAME_S, 5)
    store = "memory" if redis is None else "redis"
    publish({"turns": turns, "keys": keys, "store": store, "mark": mark, **figures, **provenance()})


if __name__ == "__main__":
    typer.run(main)
