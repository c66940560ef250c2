"""How many segments of customer-service calls come from the cache, and how soon are they heard?

A server in this process speaks the agent's side of the calls in `customer_service.txt`, turn after
turn, word by word as a language model writes. Three servers do so:

- `stores_at_once`: everything that is spoken once is cached (`cache_after` 1);
- `default`: what is spoken twice is cached;
- `warmed`: as `default`, and the script (`customer_phrases.txt`) was put into the cache before.

Each call is heard once, so a hit is a phrase of an earlier turn or of the script. Then the greeting
is spoken from the cache and, by contexts that do not use it, by the engine, by turns, in contexts
that are open already. The figures are from the complete text to the first audio: in the server, and
at a client of another server process, over a socket.
"""

import asyncio
import time
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import httpx
import structlog
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import percentiles, provenance, publish
from testbed.server_process import serving
from voiceagent_tts.client import ClientAudio, TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.core import AudioChunk
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.synthesizer.options import ContextOptions

_FOLDER = Path(__file__).parent
_WARM_UP_TURNS = 5
_CACHE_MB = 128.0
_OPENING_S = 0.01


def read_calls() -> list[list[str]]:
    """The turns of each call."""
    text = (_FOLDER / "customer_service.txt").read_text("utf-8")
    blocks = (_lines(block) for block in text.split("\n\n"))
    return [block for block in blocks if block]


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


async def speak(client: TTSClient, text: str) -> None:
    """Speak one turn."""
    context = await client.open(language="en", max_lead_s=0)
    for word in text.split(" "):
        await context.send_text(f"{word} ")
    await context.end()
    async for _ in context:
        pass


async def time_in_server(server: RunningServer, text: str, *, is_cached: bool) -> float:
    """Speak a text without a socket; return the seconds to its first audio."""
    options = ContextOptions(language="en", max_lead_s=0, cache="use" if is_cached else "off")
    context = await server.state.synthesizer.open(options)
    began = time.perf_counter()
    context.push_text(text)
    context.finish()
    arrivals = [time.perf_counter() async for event in context if isinstance(event, AudioChunk)]
    return arrivals[0] - began


async def time_at_client(client: TTSClient, text: str, *, is_cached: bool) -> float:
    """Speak a text over a socket; return the seconds to its first audio."""
    context = await client.open(language="en", max_lead_s=0, cache=is_cached)
    await asyncio.sleep(_OPENING_S)
    began = time.perf_counter()
    await context.send_text(text)
    await context.end()
    arrivals = [time.perf_counter() async for event in context if isinstance(event, ClientAudio)]
    return arrivals[0] - began


async def hear_calls(client: TTSClient) -> None:
    """Speak all turns of all calls."""
    for call in read_calls():
        for turn in call:
            await speak(client, turn)


async def warm(url: str) -> None:
    """Put the script into the cache, as `POST /v1/cache` does."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        for phrase in _lines((_FOLDER / "customer_phrases.txt").read_text("utf-8")):
            answer = await http.post("/v1/cache", json={"text": phrase, "language": "en"})
            answer.raise_for_status()


async def count_hits(after: int, *, is_warmed: bool) -> dict[str, float]:
    """The share of segments and of audio that came from the cache."""
    async with running(Settings(port=0, cache_mb=_CACHE_MB, cache_after=after)) as server:
        cache = server.state.cache
        assert cache is not None
        if is_warmed:
            await warm(server.url)
        before = (cache.counts.hits, cache.counts.misses, cache.counts.audio_s, _audio_s(server))
        async with TTSClient(server.websocket_url) as client:
            await hear_calls(client)
        hits, misses = cache.counts.hits - before[0], cache.counts.misses - before[1]
        audio_s = cache.counts.audio_s - before[2]
        return {
            "segments": hits + misses,
            "hit_rate": round(hits / (hits + misses), 3),
            "audio_share": round(audio_s / (_audio_s(server) - before[3]), 3),
            "phrases": len(cache.memory),
            "mb": round(cache.memory.size_bytes / 1e6, 2),
        }


def _audio_s(server: RunningServer) -> float:
    return server.state.metrics.registry.get_sample_value("tts_audio_seconds_total") or 0.0


async def time_hits(turns: int) -> dict[str, dict[str, float]]:
    """Times of the first audio in milliseconds, from the cache and from the engine."""
    greeting = read_calls()[0][0]
    times: defaultdict[str, list[float]] = defaultdict(list)
    with serving(engine="espeak", cache_mb=f"{_CACHE_MB}") as other:
        async with (
            running(Settings(port=0, cache_mb=_CACHE_MB)) as server,
            TTSClient(other.websocket_url) as client,
        ):
            await warm(server.url)
            await warm(other.url)
            await _take_turns(server, client, greeting, turns, times)
    return {name: percentiles(each, digits=3) for name, each in times.items()}


async def _take_turns(
    server: RunningServer, client: TTSClient, text: str, turns: int, times: dict[str, list[float]]
) -> None:
    for number in range(-_WARM_UP_TURNS, turns):
        for name, is_cached in (("cache", True), ("engine", False)):
            in_server = await time_in_server(server, text, is_cached=is_cached)
            at_client = await time_at_client(client, text, is_cached=is_cached)
            if number >= 0:
                times[f"{name}_in_server"].append(1000 * in_server)
                times[f"{name}_at_client"].append(1000 * at_client)


async def measure(turns: int) -> dict[str, Any]:
    """All figures."""
    return {
        "hits": {
            "stores_at_once": await count_hits(1, is_warmed=False),
            "default": await count_hits(2, is_warmed=False),
            "warmed": await count_hits(2, is_warmed=True),
        },
        "first_audio": await time_hits(turns),
    }


def show(figures: dict[str, Any]) -> None:
    """Print the figures as tables."""
    console = Console(stderr=True)
    for rows in figures.values():
        names = next(iter(rows.values()))
        table = Table("", *names)
        for name, row in rows.items():
            table.add_row(name, *map(str, row.values()))
        console.print(table)


def main(
    turns: Annotated[int, typer.Option(min=2, help="Greetings from cache and engine.")] = 200,
) -> None:
    """Measure the hit rate of a customer-service script, and the first audio of a hit."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    figures = asyncio.run(measure(turns))
    show(figures)
    calls = read_calls()
    publish(
        {"calls": len(calls), "turns": sum(map(len, calls)), "timed": turns, **figures}
        | provenance()
    )


if __name__ == "__main__":
    typer.run(main)
