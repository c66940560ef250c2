"""Runs the parts of a quality benchmark on targets or recordings, and reports them."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from voiceagent_tts.plugins.bench.document import SCHEMA
from voiceagent_tts.plugins.bench.machine import provenance
from voiceagent_tts.plugins.bench.quality.clips import Clip, Item
from voiceagent_tts.plugins.bench.quality.measures import (
    Values,
    by_group,
    pronunciation_values,
    word_values,
)
from voiceagent_tts.plugins.bench.quality.report import last_line, section_of, table_of
from voiceagent_tts.plugins.bench.quality.speaking import read_clips, speak_items, write_clips
from voiceagent_tts.plugins.bench.quality.test_sets import recordings_in
from voiceagent_tts.plugins.bench.quality.transcribers import Transcribe
from voiceagent_tts.plugins.bench.run import Outputs, publish, targets_or_own
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.target import Options

MEASURE = {"words": word_values, "pronunciation": pronunciation_values}
"""Part of the benchmark -> what measures its clips."""
Clips = Mapping[str, Sequence[Clip]]
"""Part -> its clips."""
Parts = Mapping[str, Sequence[Item]]
"""Part -> what is spoken for it."""


def measured(clips: Clips, transcribe: Transcribe) -> list[dict[str, Any]]:
    """The sections of one target: a document for each part and language or kind."""
    return [
        section_of(part, group, len(of), MEASURE[part](of, transcribe))
        for part, of_part in clips.items()
        for group, of in by_group(of_part, is_kind=part == "pronunciation")
    ]


async def _speak(
    address: TargetAddress, parts: Parts, together: int, progress: Progress
) -> tuple[dict[str, list[Clip]], list[tuple[str, str]]]:
    """Speak every part: its clips, and (name, code) of every failure.

    Raises:
        VoiceAgentError, OSError: the target cannot be reached.
    """
    target = address.open()
    clips: dict[str, list[Clip]] = {}
    failures: list[tuple[str, str]] = []
    for name, items in parts.items():
        task = progress.add_task(f"{address.name}: {name}", total=len(items))
        spoken = await speak_items(
            target, items, together, on_item=lambda task=task: progress.advance(task)
        )
        clips[name] = spoken.clips
        failures += spoken.failures
        progress.remove_task(task)
    return clips, failures


def read_parts(folder: Path, parts: Parts, language: str) -> dict[str, list[Clip]]:
    """Clips by part from a folder; recordings that come with their texts are measured as words.

    Raises:
        InvalidRequestError: it has no recordings of any part.
        OSError: a file cannot be read.
    """
    part_of = {item.name: part for part, items in parts.items() for item in items}
    every = [item for items in parts.values() for item in items]
    found: dict[str, list[Clip]] = {}
    for clip in read_clips(recordings_in(folder, every, language)):
        found.setdefault(part_of.get(clip.item.name, "words"), []).append(clip)
    return found


def run_quality(
    addresses: Sequence[TargetAddress],
    recordings: Path | None,
    parts: Parts,
    transcriber: tuple[str, Transcribe],
    outputs: Outputs,
    options: Options,
    *,
    together: int = 4,
    language: str = "en",
) -> dict[str, Any]:
    """Speak or read, measure, print the table and the JSON line, write files; the document.

    Args:
        addresses: what speaks; without any, a server that is started for this run.
        recordings: folder that is read instead.
        parts: what is spoken.
        transcriber: name and function of what writes down the speech.
        outputs: where results go.
        options: how a started server is spoken to.
        together: utterances at once.
        language: language of recordings that come with their texts.

    Raises:
        VoiceAgentError, OSError: a target cannot be reached, or a file cannot be read or written.
    """
    origin = provenance()
    name_of_judge, transcribe = transcriber

    async def speak_all(progress: Progress) -> list[tuple[str, Clips, list[tuple[str, str]]]]:
        async with targets_or_own(addresses, outputs.folder, options) as opened:
            return [(each.name, *await _speak(each, parts, together, progress)) for each in opened]

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    console = Console(stderr=True)
    sections: list[dict[str, Any]] = []
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        if recordings is not None:
            spoken = [(recordings.name, read_parts(recordings, parts, language), [])]
        else:
            spoken = asyncio.run(speak_all(progress))
        for name, clips, failures in spoken:
            if outputs.save is not None:
                write_clips(
                    (each for of in clips.values() for each in of), outputs.save / _file_name(name)
                )
            task = progress.add_task(f"{name}: measuring", total=None)
            found = [*measured(clips, transcribe), *_failed(failures)]
            sections += [{"target": name, **each} for each in found]
            progress.remove_task(task)
    document = {
        "schema": SCHEMA, "kind": "quality", **origin, "judged_by": name_of_judge,
        "sections": sections,
    }  # fmt: skip
    publish(document, outputs, table_of(sections), line_of=last_line)
    return document


def _failed(failures: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """A section for what was not spoken, if anything was not."""
    examples = [{"item": name, "finding": code} for name, code in failures]
    section = section_of("failures", "", len(failures), Values(examples=examples))
    return [section] if failures else []


def _file_name(target: str) -> str:
    return "".join(each if each.isalnum() else "-" for each in target).strip("-")
