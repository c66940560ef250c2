"""Runs a quality benchmark on targets or recordings, and reports it."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from voiceagent_tts.plugins.bench.document import SCHEMA
from voiceagent_tts.plugins.bench.machine import provenance
from voiceagent_tts.plugins.bench.quality.measures import Values, by_language, word_values
from voiceagent_tts.plugins.bench.quality.report import last_line, section_of, table_of
from voiceagent_tts.plugins.bench.quality.speaking import (
    TargetSpeech,
    read_clips,
    speak_items,
    write_clips,
)
from voiceagent_tts.plugins.bench.quality.test_sets import Item, recordings_in
from voiceagent_tts.plugins.bench.quality.transcribers import Transcribe
from voiceagent_tts.plugins.bench.run import Outputs, counting_progress, publish, targets_or_own
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.target import Options


async def _speak(
    targets: AbstractAsyncContextManager[Sequence[TargetAddress]],
    items: Sequence[Item],
    together: int,
    progress: Progress,
) -> list[tuple[str, TargetSpeech]]:
    """Speak every item by every target: the name and the speech of each."""
    spoken: list[tuple[str, TargetSpeech]] = []
    async with targets as opened:
        for address in opened:
            task = progress.add_task(address.name, total=len(items))
            speech = await speak_items(
                address.open(), items, together, lambda task=task: progress.advance(task)
            )
            spoken.append((address.name, speech))
            progress.remove_task(task)
    return spoken


def run_quality(
    addresses: Sequence[TargetAddress],
    recordings: Path | None,
    items: Sequence[Item],
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
        items: what is spoken.
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
    sections: list[dict[str, Any]] = []
    with counting_progress(Console(stderr=True)) as progress:
        if recordings is not None:
            clips = read_clips(recordings_in(recordings, items, language))
            spoken = [(recordings.name, TargetSpeech(clips, []))]
        else:
            targets = targets_or_own(addresses, outputs.folder, options)
            spoken = asyncio.run(_speak(targets, items, together, progress))
        for name, speech in spoken:
            if outputs.save is not None:
                write_clips(speech.clips, outputs.save / _file_name(name))
            task = progress.add_task(f"{name}: measuring", total=None)
            sections += [{"target": name, **each} for each in _sections(speech, transcribe)]
            progress.remove_task(task)
    document = {
        "schema": SCHEMA, "kind": "quality", **origin, "judged_by": name_of_judge,
        "sections": sections,
    }  # fmt: skip
    publish(document, outputs, table_of(sections), line_of=last_line)
    return document


def _sections(speech: TargetSpeech, transcribe: Transcribe) -> Iterator[dict[str, Any]]:
    """A section for each language, and one for what was not spoken, if anything was not."""
    for language, clips in by_language(speech.clips).items():
        yield section_of("words", language, len(clips), word_values(clips, transcribe))
    if failures := speech.failures:
        examples = [{"item": name, "finding": code} for name, code in failures]
        yield section_of("failures", "", len(failures), Values(examples=examples))


def _file_name(target: str) -> str:
    return "".join(each if each.isalnum() else "-" for each in target).strip("-")
