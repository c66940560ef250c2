"""What does the watermark cost, per frame?

Two servers run in this process: one marks, the other does not. Turns go to one and the other by
turns, without pacing, so that everything that delays a message shows. The figures are

- mark: the marking of one frame of 80 ms, in the server;
- first audio: from `context.open` to the first audio message, at the client;
- frame: from one audio message to the next, at the client.
"""

import asyncio
import time
from collections import defaultdict
from typing import Annotated, Any

import numpy as np
import structlog
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import percentiles, provenance, publish
from benchmarks.service.access_cost import Times, take_turn
from voiceagent_tts.client import TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ
from voiceagent_tts.provenance.keys import KEY_BYTES, WatermarkKey
from voiceagent_tts.provenance.watermark import Marker
from voiceagent_tts.server.serve import running

_WARM_UP_TURNS = 5
_KEY = WatermarkKey(bytes(KEY_BYTES))


async def measure(turns: int) -> dict[str, Times]:
    """Take turns with both servers, one after the other."""
    results: dict[str, Times] = {"unmarked": defaultdict(list), "marked": defaultdict(list)}
    secret = _KEY.secret.hex()
    async with (
        running(Settings(port=0, cache_mb=0, watermark=False)) as plain,
        running(
            Settings.model_validate({"port": 0, "cache_mb": 0, "watermark_key": secret})
        ) as marking,
        TTSClient(plain.websocket_url) as plain_client,
        TTSClient(marking.websocket_url) as marking_client,
    ):
        clients = {"unmarked": plain_client, "marked": marking_client}
        for number in range(-_WARM_UP_TURNS, turns):
            for name, client in clients.items():
                await take_turn(client, results[name] if number >= 0 else defaultdict(list))
    return results


def mark_times_s(frames: int) -> list[float]:
    """Seconds to mark each of `frames` frames of noise."""
    noise = np.random.default_rng(1).integers(-8000, 8000, frames * FRAME_SAMPLES).astype("<i2")
    marker, times = Marker(_KEY), list[float]()
    for frame in np.split(noise, frames):
        began = time.perf_counter()
        marker.push(frame.tobytes())
        times.append(time.perf_counter() - began)
    return times


def summarize(results: dict[str, Times], mark_s: list[float]) -> dict[str, Any]:
    """Figures of both servers in milliseconds, what marking adds, and its real-time factor."""
    frame_s = FRAME_SAMPLES / SAMPLE_RATE_HZ
    figures: dict[str, Any] = {
        "rtf": round(float(np.mean(mark_s)) / frame_s, 5),
        "mark": percentiles([1000 * second for second in mark_s], digits=3),
    }
    for name in ("first_audio", "frame"):
        without, with_ = (
            percentiles([1000 * second for second in results[server][name]], digits=3)
            for server in ("unmarked", "marked")
        )
        added = {key: round(with_[key] - without[key], 3) for key in without}
        figures[name] = {"unmarked": without, "marked": with_, "added": added}
    return figures


def show(figures: dict[str, Any]) -> None:
    """Print the figures as a table."""
    table = Table("", "", "p50 ms", "p95 ms", "p99 ms")
    table.add_row("mark", f"RTF {figures['rtf']}", *map(str, figures["mark"].values()))
    for name in ("first_audio", "frame"):
        for server, row in figures[name].items():
            table.add_row(name, server, *(f"{value:.3f}" for value in row.values()))
    Console(stderr=True).print(table)


def main(
    turns: Annotated[int, typer.Option(min=2, help="Turns with each server.")] = 150,
    frames: Annotated[int, typer.Option(min=10, help="Frames to mark.")] = 2000,
) -> None:
    """Measure what the watermark adds to each frame."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    figures = summarize(asyncio.run(measure(turns)), mark_times_s(frames))
    show(figures)
    publish({"turns": turns, **figures, **provenance()})


if __name__ == "__main__":
    typer.run(main)
