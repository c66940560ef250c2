"""Runs the parts of a quality benchmark on targets or recordings, and reports them."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.document import SCHEMA
from voiceagent_tts.plugins.bench.machine import provenance
from voiceagent_tts.plugins.bench.quality.clips import Clip, Item
from voiceagent_tts.plugins.bench.quality.measures import (
    Values,
    artifact_values,
    by_group,
    continuity_values,
    pronunciation_values,
    word_values,
)
from voiceagent_tts.plugins.bench.quality.report import last_line, section_of, table_of
from voiceagent_tts.plugins.bench.quality.speaking import (
    TargetSpeech,
    read_clips,
    speak_items,
    write_clips,
)
from voiceagent_tts.plugins.bench.quality.test_sets import recordings_in
from voiceagent_tts.plugins.bench.quality.transcribers import Transcribe
from voiceagent_tts.plugins.bench.quality.voices import Embed, voice_values
from voiceagent_tts.plugins.bench.run import Outputs, publish, targets_or_own
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.target import Options

PARTS = ("words", "pronunciation", "artifacts", "continuity", "voice")
_NEEDS = {
    "words": "--transcriber",
    "pronunciation": "--transcriber",
    "voice": "--speaker-model and a reference",
}
_SETS = {"pronunciation": "pronunciation", "artifacts": "inputs"}
"""Part -> the set that it measures; the others measure `texts`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is spoken, and how.

    Attributes:
        parts: parts of the benchmark, of `PARTS`.
        texts: items whose words, voice and joints are measured.
        pronunciations: items of pronunciation.
        inputs: short inputs, in which artifacts are sought.
        together: utterances at once.
        language: language of recordings that come with their texts.
    """

    parts: Sequence[str]
    texts: Sequence[Item]
    pronunciations: Sequence[Item]
    inputs: Sequence[Item]
    together: int = 4
    language: str = "en"

    def sets(self) -> Iterator[tuple[str, Sequence[Item], bool]]:
        """(name, items, whether texts arrive as language models write them) of what is spoken."""
        if set(self.parts) - set(_SETS):
            yield "texts", self.texts, "continuity" in self.parts
        if "continuity" in self.parts:
            yield "whole", self.texts, False
        if "pronunciation" in self.parts:
            yield "pronunciation", self.pronunciations, False
        if "artifacts" in self.parts:
            yield "inputs", self.inputs, False


@dataclass(frozen=True, slots=True)
class Tools:
    """What judges the speech; a part without its tool is not run.

    Attributes:
        transcribe: writes down what is heard.
        embed: speaker encoder.
        reference: recording of the voice of items without one.
        names: part -> what judged it, for the document.
    """

    transcribe: Transcribe | None = None
    embed: Embed | None = None
    reference: Path | None = None
    names: dict[str, str] = field(default_factory=dict[str, str])

    def missing(self, part: str, plan: Plan) -> str | None:
        """The options without which a part cannot run; None if nothing is missing."""
        has_reference = self.reference or any(item.reference for item in plan.texts)
        tools = {
            "words": self.transcribe,
            "pronunciation": self.transcribe,
            "voice": self.embed if has_reference else None,
        }
        return _NEEDS[part] if part in tools and tools[part] is None else None


def measured(clips: dict[str, list[Clip]], plan: Plan, tools: Tools) -> Iterator[dict[str, Any]]:
    """The sections of one target: a document for each part and language or kind."""
    for part in plan.parts:
        of_part = clips.get(_SETS.get(part, "texts"), [])
        for group, of in by_group(of_part, is_kind=part == "pronunciation"):
            yield section_of(part, group, len(of), _values(part, of, clips, tools))


def _values(part: str, of: list[Clip], clips: dict[str, list[Clip]], tools: Tools) -> Values:
    if part == "words" and tools.transcribe:
        return word_values(of, tools.transcribe)
    if part == "pronunciation" and tools.transcribe:
        return pronunciation_values(of, tools.transcribe)
    if part == "voice" and tools.embed:
        return voice_values(of, tools.embed, tools.reference)
    if part == "artifacts":
        return artifact_values(of)
    return continuity_values(of, clips.get("whole", []))


async def speak_plan(
    address: TargetAddress, plan: Plan, progress: Progress
) -> tuple[dict[str, list[Clip]], list[tuple[str, str]]]:
    """Speak every set of a plan: clips by set, and (name, code) of every failure.

    Raises:
        VoiceAgentError, OSError: the target cannot be reached.
    """
    target = address.open()
    clips: dict[str, list[Clip]] = {}
    failures: list[tuple[str, str]] = []
    for name, items, has_tokens in plan.sets():
        task = progress.add_task(f"{address.name}: {name}", total=len(items))
        spoken: TargetSpeech = await speak_items(
            target, items, plan.together, has_tokens=has_tokens,
            on_item=lambda task=task: progress.advance(task),
        )  # fmt: skip
        clips[name] = spoken.clips
        failures += spoken.failures
        progress.remove_task(task)
    return clips, failures


def read_plan(folder: Path, plan: Plan) -> dict[str, list[Clip]]:
    """Clips by set from a folder; what the plan would speak whole only is not in it.

    Raises:
        InvalidRequestError: it has no recordings of the plan.
        OSError: a file cannot be read.
    """
    sets = {name: items for name, items, _ in plan.sets() if name != "whole"}
    every = [item for items in sets.values() for item in items]
    clips = read_clips(recordings_in(folder, every, plan.language))
    found: dict[str, list[Clip]] = {}
    names = {item.name: name for name, items in sets.items() for item in items}
    for clip in clips:
        of_texts = clip.item.kind == "recording"
        for name in sets if of_texts else [names[clip.item.name]]:
            if not (of_texts and name == "pronunciation"):
                found.setdefault(name, []).append(clip)
    return found


def run_quality(
    addresses: Sequence[TargetAddress],
    recordings: Path | None,
    plan: Plan,
    tools: Tools,
    outputs: Outputs,
    options: Options,
) -> dict[str, Any]:
    """Speak or read, measure, print the table and the JSON line, write files; the document.

    Raises:
        VoiceAgentError, OSError: a target cannot be reached, or a file cannot be read or written.
    """
    origin = provenance()
    console = Console(stderr=True)
    missing = {part: tools.missing(part, plan) for part in plan.parts}
    runnable = [part for part, need in missing.items() if need is None]
    not_run = {part: f"needs {need}" for part, need in missing.items() if need is not None}
    if not runnable:
        needs = ", ".join(sorted(set(not_run.values())))
        raise InvalidRequestError(f"expected a part that can run; every part {needs}")
    plan = replace(plan, parts=runnable)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        if recordings is not None:
            spoken = [(recordings.name, read_plan(recordings, plan), [])]
        else:
            spoken = asyncio.run(_speak_all(addresses, plan, outputs, options, progress))
        sections: list[dict[str, Any]] = []
        for name, clips, failures in spoken:
            if outputs.save is not None:
                _save(clips, outputs.save / _file_name(name))
            task = progress.add_task(f"{name}: measuring", total=None)
            sections += [{"target": name, **each} for each in measured(clips, plan, tools)]
            sections += [{"target": name, **_failed(failures)}] if failures else []
            progress.remove_task(task)
    document = {
        "schema": SCHEMA, "kind": "quality", **origin, "judged_by": tools.names,
        "not_run": not_run, "sections": sections,
    }  # fmt: skip
    skipped = (f"{part}: not run, {reason}" for part, reason in not_run.items())
    publish(document, outputs, table_of(sections), skipped, line_of=last_line)
    return document


async def _speak_all(
    addresses: Sequence[TargetAddress],
    plan: Plan,
    outputs: Outputs,
    options: Options,
    progress: Progress,
) -> list[tuple[str, dict[str, list[Clip]], list[tuple[str, str]]]]:
    async with targets_or_own(addresses, outputs.folder, options) as opened:
        return [(each.name, *await speak_plan(each, plan, progress)) for each in opened]


def _failed(failures: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """A section for what was not spoken."""
    examples = [{"item": name, "finding": code} for name, code in failures]
    return section_of("failures", "", len(failures), Values(examples=examples))


def _save(clips: dict[str, list[Clip]], folder: Path) -> None:
    for name, of in clips.items():
        write_clips(of, folder / name if name == "whole" else folder)


def _file_name(target: str) -> str:
    return "".join(each if each.isalnum() else "-" for each in target).strip("-")
