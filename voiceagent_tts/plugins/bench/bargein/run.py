"""Interrupts agents on both hosts, judges what was heard, and reports what their history says."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.progress import Progress

from voiceagent_tts.audio.resample import Resampler
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.bargein.conditions import Condition
from voiceagent_tts.plugins.bench.bargein.ear import Ear
from voiceagent_tts.plugins.bench.bargein.judge import Judge, Recording
from voiceagent_tts.plugins.bench.bargein.known_speech import espeak
from voiceagent_tts.plugins.bench.bargein.pool import Conversation, SessionPool
from voiceagent_tts.plugins.bench.bargein.replies import USER_TEXT
from voiceagent_tts.plugins.bench.bargein.report import (
    ear_figures,
    ear_table_of,
    section_of,
    table_of,
    warnings_of,
)
from voiceagent_tts.plugins.bench.bargein.session import Call, Host, Outcome
from voiceagent_tts.plugins.bench.document import SCHEMA
from voiceagent_tts.plugins.bench.machine import provenance
from voiceagent_tts.plugins.bench.run import Outputs, counting_progress, publish
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress

_USER_SPEAKER, _USER_RATE_HZ = "f2", 16_000
_TABLE_WIDTH = 120
_HOSTS: tuple[Host, ...] = ("pipecat", "livekit")


def user_speech() -> bytes:
    """The user's interruption as a microphone hears it: PCM16 at 16 kHz."""
    spoken = np.frombuffer(espeak(USER_TEXT, "en", _USER_SPEAKER).pcm, "<i2")
    resampler = Resampler(SAMPLE_RATE_HZ, _USER_RATE_HZ)
    return np.concatenate((resampler.push(spoken), resampler.finish())).astype("<i2").tobytes()


def host_of(address: TargetAddress) -> Host:
    """The host of a target's class.

    Raises:
        InvalidRequestError: the target is not a class of a host, the class does not exist, or a
            package is missing.
    """
    kind = address.address.partition(":")[0]
    for host in _HOSTS:
        if kind == host:
            address.open()
            return host
    raise InvalidRequestError(
        "target: expected pipecat:MODULE.CLASS or livekit:MODULE.CLASS, because a history is its "
        f"host's; got {address.address!r}"
    )


def outcomes_of(
    target: str, conversations: Sequence[Conversation], judge: Judge, ear: Ear | None = None
) -> tuple[list[Outcome], list[Outcome]]:
    """Judge every reply with sound that was interrupted; the second list is by `ear`."""
    replies = [
        reply
        for conversation in conversations
        for reply in conversation.replies
        if reply.played and reply.was_interrupted
    ]
    recordings = [
        Recording(
            f"{target} {reply.cut.language}", reply.cut.language, reply.cut.text, reply.played
        )
        for reply in replies
    ]
    judge.learn(recordings)
    both = list(zip(replies, recordings, strict=True))
    judged = [reply.outcome(judge.heard(recording)) for reply, recording in both]
    by_ear = [] if ear is None else [reply.outcome(ear.heard(rec)) for reply, rec in both]
    return judged, by_ear


async def measure(
    addresses: Sequence[TargetAddress],
    conditions: Sequence[Condition],
    seed: int,
    progress: Progress,
    ear: Ear | None = None,
) -> list[dict[str, Any]]:
    """Measure every target in every condition; `seed` is that of the moments of the cuts.

    Returns:
        One section for each, in the order of the targets.

    Raises:
        InvalidRequestError: a target cannot be measured.
    """
    hosts = [host_of(address) for address in addresses]
    judge, user_pcm = Judge(), user_speech()
    sections: list[dict[str, Any]] = []
    async with contextlib.AsyncExitStack() as stack:
        pools = {
            host: await stack.enter_async_context(
                SessionPool(host, max(condition.together for condition in conditions))
            )
            for host in _HOSTS
            if host in hosts
        }
        for address, host in zip(addresses, hosts, strict=True):
            for condition in conditions:
                title = condition.happening.heading
                show = shown(progress, f"{address.name}, {title}", condition.cuts)
                rng = random.Random(f"{seed} {title}")
                call = _call(address, condition, user_pcm)
                talked = await pools[host].talk(call, condition.plans(rng), show)
                outcomes, by_ear = outcomes_of(address.name, talked, judge, ear)
                section = section_of(address.name, title, condition.cuts, outcomes, talked)
                sections.append(section if ear is None else section | ear_figures(by_ear))
    return sections


def _call(address: TargetAddress, condition: Condition, user_pcm: bytes) -> Call:
    call = Call(address.service_class, user_pcm, fault=condition.happening.fault)
    if call.fault is not None:
        _ = call.server_url  # refuses what cannot be cut before anything is spoken
    return call


def shown(progress: Progress, name: str, total: int) -> Callable[[int], None]:
    """Add a task, and return what shows how much of it is done."""
    task = progress.add_task(name, total=total)
    return lambda done: progress.update(task, completed=done)


def run_bargein(
    targets: AbstractAsyncContextManager[Sequence[TargetAddress]],
    conditions: Sequence[Condition],
    seed: int,
    outputs: Outputs,
    command: str | None = None,
    ear: str | None = None,
) -> dict[str, Any]:
    """Measure the targets, print tables and the JSON line, and write the files.

    Args:
        targets: yields what is measured, as `targets_or_ours` does.
        conditions: the conditions.
        seed: seed of the moments of the cuts.
        outputs: where results go.
        command: the command line, if it was not this process's.
        ear: address of a recogniser that also judges what was heard, as for `Ear.open`.

    Raises:
        VoiceAgentError, OSError: a target cannot be measured, or a file cannot be written.
    """
    origin = provenance(command)
    hears = None if ear is None else Ear.open(ear)

    async def all_targets(progress: Progress) -> list[dict[str, Any]]:
        async with targets as opened:
            return await measure(opened, conditions, seed, progress, hears)

    with counting_progress(Console(stderr=True)) as progress:
        sections = asyncio.run(all_targets(progress))
    document = {
        "schema": SCHEMA, "kind": "bargein", **origin, "seed": seed, "ear": ear,
        "sections": sections,
    }  # fmt: skip
    by_ear = [] if hears is None else ["", ear_table_of(sections)]
    tables = Group(table_of(sections), *by_ear)
    warnings = warnings_of(sections)
    publish(document, outputs, tables, warnings, least_width=_TABLE_WIDTH)
    return document
