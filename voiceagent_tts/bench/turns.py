"""Runs whole turns on a host, and reports how long each stage takes."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from voiceagent_tts.bench.machine import provenance
from voiceagent_tts.bench.own_server import own_server
from voiceagent_tts.bench.pipecat_log import quiet
from voiceagent_tts.bench.pipecat_turns import Question, ServiceClass, Services, measure_turns
from voiceagent_tts.bench.stage_clock import STAGES, StageClock
from voiceagent_tts.bench.statistics import percentiles
from voiceagent_tts.bench.targets.addresses import TargetAddress
from voiceagent_tts.bench.targets.target import Options
from voiceagent_tts.client import AudioFormat, ClientAudio, TTSClient
from voiceagent_tts.errors import InvalidRequestError

_OURS = "voiceagent_tts.adapters.pipecat.VoiceAgentTTSService"
_QUESTIONS = (
    ("Which days are you open this week?", "We are open from Monday to Saturday."),
    ("How much is the big one?", "The big one costs forty two dollars today."),
    ("Can you call me back tomorrow?", "Of course, I will call you at nine."),
    ("Where is the nearest station?", "It is two hundred metres from here."),
)
_USER_VOICE, _USER_RATE_HZ = "nova", 16_000
_SERVER_LOG = "bench-turn-server.log"


def service_class(text: str | None) -> ServiceClass | None:
    """`MODULE.CLASS{JSON}`, with or without `pipecat:` before it; None for None.

    Raises:
        InvalidRequestError: it is a class of another host, or the JSON is none.
    """
    if text is None:
        return None
    host = text.partition("{")[0].partition(":")[0]
    address = TargetAddress.parse(
        text if ":" in text.partition("{")[0] else f"pipecat:{text}", Options()
    )
    if not address.address.startswith("pipecat:"):
        raise InvalidRequestError(f"expected a service of Pipecat, got one of {host!r}")
    return ServiceClass(address.address.removeprefix("pipecat:"), address.options.arguments)


async def _measure(
    tts: ServiceClass | None,
    stt: ServiceClass | None,
    llm: ServiceClass | None,
    turns: int,
    folder: Path,
) -> StageClock:
    async with own_server(log=folder / _SERVER_LOG) as server:
        asked = [_QUESTIONS[number % len(_QUESTIONS)] for number in range(turns)]
        voices = {text: await _spoken(server.url, text) for text, _ in set(asked)}
        questions = [Question(text, voices[text], answer) for text, answer in asked]
        ours = ServiceClass(_OURS, {"url": server.url, "language": "en"})
        return await measure_turns(Services(tts or ours, stt, llm), questions)


async def _spoken(url: str, text: str) -> bytes:
    """The user's question, as a microphone hears it."""
    audio = AudioFormat(sample_rate=_USER_RATE_HZ)
    async with TTSClient(url) as client:
        events = client.say(text, voice=_USER_VOICE, language="en", audio=audio, max_lead_s=0)
        return b"".join([event.pcm async for event in events if isinstance(event, ClientAudio)])


def run_turns(tts: str | None, stt: str | None, llm: str | None, turns: int, folder: Path) -> None:
    """Measure, print a table, and end with one JSON object.

    Raises:
        VoiceAgentError: a service cannot be used, or does not answer.
    """
    origin = provenance()
    quiet()
    clock = asyncio.run(
        _measure(service_class(tts), service_class(stt), service_class(llm), turns, folder)
    )
    stages = {stage.value: [turn.stages[stage] for turn in clock.turns] for stage in STAGES}
    stages["total"] = [turn.total_s for turn in clock.turns]
    figures = {name: _figures(seconds) for name, seconds in stages.items()}
    table = Table(title=f"{len(clock.turns)} turns in Pipecat, ms", box=None)
    for heading in ("stage", "p50", "p95", "95 % interval of p50"):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    for name, of in figures.items():
        low, high = of["p50_interval_ms"]
        table.add_row(
            name, f"{of['p50_ms']:.0f}", f"{of['p95_ms']:.0f}", f"{low:.0f} to {high:.0f}"
        )
    Console().print(table)
    result = {"kind": "turn", **origin, "turns": len(clock.turns), "stages": figures}
    sys.stdout.write(json.dumps(result) + "\n")


def _figures(seconds: Sequence[float]) -> dict[str, Any]:
    ranks = percentiles([1000 * value for value in seconds])
    middle = ranks[50]
    return {
        "p50_ms": round(middle.value, 1),
        "p95_ms": round(ranks[95].value, 1),
        "p50_interval_ms": [round(middle.low, 1), round(middle.high, 1)],
    }
