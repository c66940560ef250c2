"""How many paced streams does one server carry on this machine, its client included?

Every stream is a context with a text of its own, `--speech-s` or more of speech, paced by the
server; all open together, 25 to a socket. The listener of each plays at once; an underrun is
playback that reaches audio which has not come. Reported besides:

- lateness: arrival of a message, less the moment when it is needed; below zero where nothing is
  late. Jitter is how far its p99 lies above its median once the lead has been built up;
- PCM: what comes over a socket is what the engine made. espeak's sound depends on all that its
  process has said before, so two servers speak the same texts, each as the first of its life: one
  is heard over its socket, the other where the engine's audio enters the server. Under load, every
  stream is checked to be without gap and as long as the server says;
- the ZeroMQ hop between engine and server (`benchmarks.hop`), against a call;
- CPU seconds of all processes for each second of speech, in per cent of one core: what a stream
  takes while it plays; and their memory above what they had before.

`--search` doubles the streams until one underruns, then halves the interval.
"""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.agent_text import agent_monologue
from benchmarks.hop import measure_hop
from benchmarks.listener import Playback, play
from benchmarks.own_server import own_server
from benchmarks.paced_streams import Load, Plan, carry
from benchmarks.report import percentiles, provenance, publish
from voiceagent_tts.client import TTSClient
from voiceagent_tts.config import Settings
from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk
from voiceagent_tts.protocol.connection import ClientAudio
from voiceagent_tts.server.serve import RunningServer, running
from voiceagent_tts.synthesizer import ContextOptions

_FASTEST_WORDS_PER_S = 3.2  # of the embedded voice over these texts: no stream is too short
_DEFAULT_MAX_LEAD_S: float = Settings.model_fields["max_lead_s"].default
_PCM_TEXTS = 4
_SEARCH_RESOLUTION = 25
_SERVER_LOG = Path("out/transport-server.log")


def plan_streams(count: int, speech_s: float, ramp_s: float, seed: int) -> list[Plan]:
    """Streams of at least `speech_s` that begin within `ramp_s`, as Poisson arrivals do.

    Where a Poisson process has made a number of arrivals in a span, each is anywhere in it with
    equal chance.
    """
    rng = random.Random(seed)
    words = round(speech_s * _FASTEST_WORDS_PER_S)
    return [
        Plan(agent_monologue(seed + index, words), rng.uniform(0, ramp_s)) for index in range(count)
    ]


def summarize(load: Load, max_lead_s: float) -> dict[str, Any]:
    """The figures of a load, under their names in the JSON object."""
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
    """Lateness of the messages that pacing, not the start, has timed."""
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
        "speech_s": round(speech_s, 1),
        "messages": sum(len(stream.times) for stream in load.streams),
        "cpu_percent_per_stream": round(sum(cpu.values()), 3),
        **{f"{role}_cpu_percent_per_stream": round(share, 3) for role, share in cpu.items()},
        "rss_mb_per_stream": round(rss["server"] + rss["worker"], 3),
        **{f"{role}_rss_mb_per_stream": round(growth, 3) for role, growth in rss.items()},
        "client_lag_p99_ms": percentiles(load.client_lag_ms or (0.0,), digits=1)["p99_ms"],
    }


async def is_pcm_equal(texts: Sequence[str]) -> bool:
    """Whether PCM that comes over a socket is what the engine hands to the server."""
    async with running(Settings(port=0)) as server:
        heard = await _heard_over_socket(server, texts)
    async with running(Settings(port=0)) as server:
        made = await _made_by_engine(server, texts)
    return all(made) and heard == made


async def _heard_over_socket(server: RunningServer, texts: Sequence[str]) -> list[bytes]:
    heard: list[bytes] = []
    async with TTSClient(server.websocket_url) as client:
        for text in texts:
            events = [event async for event in client.say(text, max_lead_s=0)]
            heard.append(b"".join(e.pcm for e in events if isinstance(e, ClientAudio)))
    return heard


async def _made_by_engine(server: RunningServer, texts: Sequence[str]) -> list[bytes]:
    made: list[bytes] = []
    for text in texts:
        context = await server.shell.synthesizer.open(ContextOptions(max_lead_s=0))
        context.push_text(text)
        context.finish()
        events = [event async for event in context]
        made.append(b"".join(e.pcm for e in events if isinstance(e, AudioChunk)))
    return made


async def search(
    carried_well: Callable[[int], Awaitable[bool]], first: int, resolution: int
) -> int:
    """The most streams that are carried well, to `resolution`; 0 where `first` are not."""
    good, bad = 0, first
    while await carried_well(bad):
        good, bad = bad, bad * 2
    while good and bad - good > resolution:
        middle = (good + bad) // 2
        if await carried_well(middle):
            good = middle
        else:
            bad = middle
    return good
