"""How many paced streams does one server carry on this machine, its client included?

Every stream is a context with its own text, `--speech-s` or more of speech, paced by the server;
all are open together, 25 per socket. Each listener plays audio on arrival; an underrun means that
playback reached audio that had not arrived. The benchmark also reports

- lateness: arrival of a message minus the time when it is needed; negative if it is in time. Jitter
  is the distance from its median to its p99 once the lead has been built up;
- PCM: for some concurrent streams, whether the client receives exactly the bytes that the engine
  sent to the server. For this check both run in one process, where the engine's output is recorded:
  espeak's samples depend on its earlier texts, so it cannot be asked again. Under load, every
  stream is checked to be without gaps and as long as the server reports;
- the ZeroMQ hop between engine and server (`benchmarks.service.hop`), compared with a call;
- CPU seconds of all processes per second of speech, in per cent of one core: the share of a
  stream that plays; and the growth of their memory.

`--search` doubles the number of streams until one underruns, then bisects.
"""

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common.report import percentiles, provenance, publish
from benchmarks.service.hop import measure_hop
from benchmarks.service.paced_streams import Load, Plan, carry
from testbed.agent_text import agent_monologue
from voiceagent_tts.bench.listener import Playback, play
from voiceagent_tts.bench.own_server import own_server
from voiceagent_tts.cli.serve import configure_logs
from voiceagent_tts.client import TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import OverloadedError
from voiceagent_tts.protocol.client_connection import ClientAudio
from voiceagent_tts.seam.aligner_messages import AlignEvent
from voiceagent_tts.seam.events import AudioStep, Event
from voiceagent_tts.server.serve import running
from voiceagent_tts.synthesizer.worker_client import EventHandler, WorkerClient

_FASTEST_WORDS_PER_S = 3.2  # of the embedded voice over these texts: no stream is too short
_DEFAULT_MAX_LEAD_S: float = Settings.model_fields["max_lead_s"].default
_PCM_TEXTS = 16
_SEARCH_RESOLUTION = 25
_SERVER_LOG = Path("out/transport-server.log")


def plan_streams(count: int, speech_s: float, ramp_s: float, seed: int) -> list[Plan]:
    """Plan streams of at least `speech_s` with Poisson arrivals within `ramp_s`.

    Given their number, the arrivals of a Poisson process are uniformly distributed.
    """
    rng = random.Random(seed)
    words = round(speech_s * _FASTEST_WORDS_PER_S)
    return [
        Plan(agent_monologue(seed + index, words), rng.uniform(0, ramp_s)) for index in range(count)
    ]


def summarize(load: Load, max_lead_s: float) -> dict[str, Any]:
    """Return the figures of a load, under their names in the JSON object."""
    playbacks = [play(stream.times, stream.sizes) for stream in load.streams]
    return {
        "streams": len(load.streams),
        "underruns": sum(playback.underruns for playback in playbacks),
        "underrun_streams": sum(playback.underruns > 0 for playback in playbacks),
        "underrun_ms": round(1000 * sum(playback.underrun_s for playback in playbacks), 1),
        **_timeliness(load, playbacks, max_lead_s),
        **_cost(load),
    }


def _timeliness(load: Load, playbacks: Sequence[Playback], max_lead_s: float) -> dict[str, float]:
    late_ms = [late * 1000 for playback in playbacks for late in playback.lateness_s]
    steady_ms = list(_steady_late_ms(load, playbacks, max_lead_s)) or late_ms
    late, steady = percentiles(late_ms, digits=1), percentiles(steady_ms, digits=1)
    first = percentiles([stream.first_audio_s * 1000 for stream in load.streams], digits=1)
    return {
        "late_p50_ms": late["p50_ms"],
        "late_p99_ms": late["p99_ms"],
        "late_max_ms": round(max(late_ms), 1),
        "jitter_p99_ms": round(steady["p99_ms"] - steady["p50_ms"], 1),
        "first_audio_p50_ms": first["p50_ms"],
        "first_audio_p99_ms": first["p99_ms"],
    }


def _steady_late_ms(
    load: Load, playbacks: Sequence[Playback], max_lead_s: float
) -> Iterator[float]:
    """Yield the lateness of messages that are timed by pacing, not by the start."""
    for stream, playback in zip(load.streams, playbacks, strict=True):
        ends = itertools.accumulate(stream.sizes)
        next(ends)  # the first message is never late
        for end, late in zip(ends, playback.lateness_s, strict=True):
            if end > max_lead_s * SAMPLE_RATE_HZ:
                yield late * 1000


def _cost(load: Load) -> dict[str, float]:
    speech_s = sum(stream.speech_s for stream in load.streams)
    cpu = {role: usage.cpu_s / speech_s * 100 for role, usage in load.usage.items()}
    rss = {
        role: usage.rss_growth_bytes / 2**20 / len(load.streams)
        for role, usage in load.usage.items()
    }
    return {
        "speech_sum_s": round(speech_s, 1),
        "messages": sum(len(stream.times) for stream in load.streams),
        "cpu_percent_per_stream": round(sum(cpu.values()), 3),
        **{f"{role}_cpu_percent_per_stream": round(share, 3) for role, share in cpu.items()},
        "rss_mb_per_stream": round(rss["server"] + rss["worker"], 3),
        **{f"{role}_rss_mb_per_stream": round(growth, 3) for role, growth in rss.items()},
        "client_lag_p99_ms": percentiles(load.client_lag_ms or (0.0,), digits=1)["p99_ms"],
    }


async def is_pcm_equal(texts: Sequence[str]) -> bool:
    """Check that a client receives the PCM that the engine sends to the server.

    All texts are spoken at once, on one socket, so that a mix-up of streams would be noticed.
    """
    settings = Settings(
        port=0, watermark=False, cache_mb=0
    )  # marked samples are not those of the engine
    with recorded_pcm() as made:
        async with running(settings) as server, TTSClient(server.websocket_url) as client:
            received = await asyncio.gather(*(_receive(client, text) for text in texts))
    return all(received) and Counter(received) <= Counter(bytes(pcm) for pcm in made)


async def _receive(client: TTSClient, text: str) -> bytes:
    events = [event async for event in client.say(text, max_lead_s=0)]
    return b"".join(event.pcm for event in events if isinstance(event, ClientAudio))


@contextlib.contextmanager
def recorded_pcm() -> Iterator[list[bytearray]]:
    """Record the PCM that engines send to this process, per context, within the block."""
    recordings: list[bytearray] = []
    attach = WorkerClient.attach

    def attach_recording(worker: WorkerClient, listener: EventHandler) -> int:
        recordings.append(recording := bytearray())

        def record(event: Event | AlignEvent) -> None:
            if isinstance(event, AudioStep):
                recording.extend(event.rows[0].chunk.pcm)
            listener(event)

        return attach(worker, record)

    with patch.object(WorkerClient, "attach", attach_recording):
        yield recordings


async def search(carries: Callable[[int], Awaitable[bool]], first: int, resolution: int) -> int:
    """Return the most streams that are carried, to `resolution`; 0 if `first` are too many."""
    good, bad = 0, first
    while await carries(bad):
        good, bad = bad, bad * 2
    while good and bad - good > resolution:
        middle = (good + bad) // 2
        if await carries(middle):
            good = middle
        else:
            bad = middle
    return good


@dataclass(frozen=True, slots=True)
class Conditions:
    """The load of every measurement; each one starts a new server."""

    speech_s: float
    ramp_s: float
    max_lead_s: float
    seed: int

    async def load(self, streams: int, console: Console) -> dict[str, Any]:
        """Run `streams` streams; return the figures.

        Raises:
            VoiceAgentError: the server refused a stream.
        """
        plans = plan_streams(streams, self.speech_s, self.ramp_s, self.seed)
        with console.status(f"carrying {streams} streams"):
            async with own_server(log=_SERVER_LOG) as server:
                load = await carry(server.url, server.pid, plans, max_lead_s=self.max_lead_s)
        figures = summarize(load, self.max_lead_s)
        console.print(f"{streams} streams: {figures['underruns']} underruns")
        return figures


async def find_most(
    conditions: Conditions, first: int, console: Console
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Search for the most streams without an underrun.

    Returns:
        The figures of the largest load that was carried, and the reason why no larger one was.
    """
    best: dict[str, Any] = {"streams": 0}
    limit: dict[str, Any] = {}

    async def carries(streams: int) -> bool:
        nonlocal best, limit
        try:
            figures = await conditions.load(streams, console)
        except OverloadedError as error:
            limit = {"limit_streams": streams, "limit": error.message}
            return False
        if figures["underruns"]:
            limit = {"limit_streams": streams, "limit": f"{figures['underruns']} underruns"}
            return False
        best = figures
        return True

    await search(carries, first, _SEARCH_RESOLUTION)
    return best, limit


def table_of(figures: dict[str, Any]) -> Table:
    """Return the figures as a table."""
    table = Table("figure", "value", title=f"{figures['streams']} paced streams")
    table.columns[1].justify = "right"
    for name, value in figures.items():
        table.add_row(name, str(value))
    return table


def main(
    streams: Annotated[int, typer.Option(min=1, help="Streams; the first with --search.")] = 200,
    speech_s: Annotated[float, typer.Option(min=1, help="Minimum length of each stream.")] = 30.0,
    ramp_s: Annotated[
        float, typer.Option(min=0, help="Streams begin within this time; 0 for at once.")
    ] = 10.0,
    max_lead_s: Annotated[
        float, typer.Option(min=0.1, help="Maximum lead of the server.")
    ] = _DEFAULT_MAX_LEAD_S,
    find: Annotated[bool, typer.Option("--search", help="Search for the most streams.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of texts and arrivals.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Also write the figures to this file.")] = None,
) -> None:
    """Measure how many paced streams one server carries."""
    origin = provenance()
    console = Console(stderr=True)
    conditions = Conditions(speech_s, ramp_s, max_lead_s, seed)

    async def measure() -> dict[str, Any]:
        hop = await measure_hop()
        pcm_texts = [plan.text for plan in plan_streams(_PCM_TEXTS, speech_s, 0, seed)]
        extra: dict[str, Any] = {
            "pcm_equal": await is_pcm_equal(pcm_texts),
            "zmq_hop_us": round(hop.zmq_us, 1),
            "in_process_hop_us": round(hop.in_process_us, 2),
        }
        if find:
            figures, limit = await find_most(conditions, streams, console)
            return {**figures, **limit, **extra}
        return {**await conditions.load(streams, console), **extra}

    configure_logs(is_json=False, is_quiet=True)  # logs of the server in this process
    figures = asyncio.run(measure())
    Console().print(table_of(figures))
    publish({**figures, **asdict(conditions), **origin}, json)


if __name__ == "__main__":
    typer.run(main)
