"""Runs whole turns on hosts, and reports how long each stage takes."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voiceagent_tts.client import AudioFormat, ClientAudio, TTSClient
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.extras import install_hint
from voiceagent_tts.plugins.bench.document import SCHEMA
from voiceagent_tts.plugins.bench.machine import provenance
from voiceagent_tts.plugins.bench.own_server import own_server
from voiceagent_tts.plugins.bench.run import Outputs, publish
from voiceagent_tts.plugins.bench.stage_clock import StageClock
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.classes import ServiceClass
from voiceagent_tts.plugins.bench.targets.target import Options
from voiceagent_tts.plugins.bench.turn_report import section_of, table_of
from voiceagent_tts.plugins.bench.turn_script import (
    MICROPHONE_RATE_HZ,
    Question,
    Services,
)

HOSTS = {"pipecat": "Pipecat", "livekit": "LiveKit"}
"""Names of hosts, and how reports spell them."""
_OURS = {
    "pipecat": "voiceagent_tts.adapters.pipecat.VoiceAgentTTSService",
    "livekit": "voiceagent_tts.adapters.livekit.TTS",
}
_QUESTIONS = (
    ("Which days are you open this week?", "We are open from Monday to Saturday."),
    ("How much is the big one?", "The big one costs forty two dollars today."),
    ("Can you call me back tomorrow?", "Of course, I will call you at nine."),
    ("Where is the nearest station?", "It is two hundred metres from here."),
)
_USER_VOICE = "nova"
_SERVER_LOG = "bench-turn-server.log"


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """What is run.

    Attributes:
        hosts: names of `HOSTS`, in the order of the report.
        tts: the voice, as `MODULE.CLASS{JSON}`; None for ours on a server of its own.
        stt: transcription in the same form; None for a stand-in.
        llm: language model in the same form; None for a stand-in.
        turns: turns in each host.
    """

    hosts: Sequence[str]
    tts: str | None
    stt: str | None
    llm: str | None
    turns: int


def service_class(text: str | None, host: str) -> ServiceClass | None:
    """`MODULE.CLASS{JSON}`, with or without the host's name and `:` before it; None for None.

    Raises:
        InvalidRequestError: it is a class of another host, or the JSON is none.
    """
    if text is None:
        return None
    named = text.partition("{")[0]
    address = TargetAddress.parse(text if ":" in named else f"{host}:{text}", Options())
    if not address.address.startswith(f"{host}:"):
        raise InvalidRequestError(
            f"expected a service of {HOSTS[host]}, got one of {named.partition(':')[0]!r}"
        )
    return ServiceClass(address.address.removeprefix(f"{host}:"), address.options.arguments)


def run_turns(plan: TurnPlan, outputs: Outputs) -> None:
    """Measure, print a table, write the files, and end with one JSON object.

    Raises:
        VoiceAgentError: a host or a service cannot be used, or does not answer.
        OSError: a file cannot be written.
    """
    _check(plan)
    document = {"schema": SCHEMA, "kind": "turn", **provenance(), "seed": 0}
    document["sections"] = asyncio.run(_measure(plan, outputs.folder))
    publish(document, outputs, table_of(document["sections"]))


def _check(plan: TurnPlan) -> None:
    unknown = [host for host in plan.hosts if host not in HOSTS]
    if unknown or not plan.hosts:
        raise InvalidRequestError(
            f"--host: expected some of {', '.join(HOSTS)}; got {', '.join(unknown) or 'none'}"
        )
    if len(plan.hosts) > 1 and (plan.tts or plan.stt or plan.llm):
        raise InvalidRequestError(
            "--tts, --stt and --llm are classes of one host; expected one --host, got "
            f"{len(plan.hosts)}"
        )


async def _measure(plan: TurnPlan, folder: Path) -> list[dict[str, Any]]:
    """One section for each host."""
    sections: list[dict[str, Any]] = []
    async with own_server(log=folder / _SERVER_LOG) as server:
        asked = [_QUESTIONS[number % len(_QUESTIONS)] for number in range(plan.turns)]
        voices = {text: await _spoken(server.url, text) for text, _ in set(asked)}
        questions = [Question(text, voices[text], answer) for text, answer in asked]
        for host in plan.hosts:
            ours = ServiceClass(_OURS[host], {"url": server.url, "language": "en"})
            tts, stt, llm = (service_class(text, host) for text in (plan.tts, plan.stt, plan.llm))
            clock = await _measure_on(host, Services(tts or ours, stt, llm), questions)
            sections.append(section_of(HOSTS[host], clock))
    return sections


async def _measure_on(host: str, services: Services, questions: Sequence[Question]) -> StageClock:
    try:
        if host == "livekit":
            from voiceagent_tts.plugins.bench.livekit_turns import measure_turns

            return await measure_turns(services, questions)
        from voiceagent_tts.demo.pipecat_log import quiet
        from voiceagent_tts.plugins.bench.pipecat_turns import measure_turns

        quiet()
        return await measure_turns(services, questions)
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"the package {error.name!r} is missing. Install it: {install_hint(host)}"
        ) from error


async def _spoken(url: str, text: str) -> bytes:
    """The user's question, as a microphone hears it."""
    audio = AudioFormat(sample_rate=MICROPHONE_RATE_HZ)
    async with TTSClient(url) as client:
        events = client.say(text, voice=_USER_VOICE, language="en", audio=audio, max_lead_s=0)
        return b"".join([event.pcm async for event in events if isinstance(event, ClientAudio)])
