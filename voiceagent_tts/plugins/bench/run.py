"""Runs loads against targets, one after the other, and reports what was measured."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from voiceagent_tts.plugins.bench.callers import Callers, Section
from voiceagent_tts.plugins.bench.document import (
    SCHEMA,
    flat,
    last_line,
    section_document,
    write_document,
)
from voiceagent_tts.plugins.bench.figures import columns_of, format_figure, table, warnings_of
from voiceagent_tts.plugins.bench.loads import Style
from voiceagent_tts.plugins.bench.machine import provenance
from voiceagent_tts.plugins.bench.own_server import own_server
from voiceagent_tts.plugins.bench.recorder import Recorder
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.target import Options
from voiceagent_tts.plugins.bench.usage import Meter
from voiceagent_tts.plugins.bench.utterance import Utterance

_SERVER_LOG = "bench-server.log"


_FEW_SECTIONS = 4
_PAGE_WIDTH = 160
_MAIN_COLUMNS = {
    "n": "utterances",
    "failed": "failed",
    "p50": "audible_p50_ms",
    "p95": "audible_p95_ms",
    "underruns": "with_underruns",
    "whole": "e2e_p50_ms",
    "chars/s": "chars_per_s",
}
"""Columns where every section is a row: heading -> name in `flat`."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a run starts, and where its results go.

    Attributes:
        folder: folder of logs.
        json: file of the document; None to write none.
        html: file of the table as a page; None to write none.
        save: folder for the recordings of `bench quality`; None to keep none.
    """

    folder: Path
    json: Path | None = None
    html: Path | None = None
    save: Path | None = None


@contextlib.asynccontextmanager
async def targets_or_own(
    addresses: Sequence[TargetAddress], folder: Path, options: Options
) -> AsyncIterator[Sequence[TargetAddress]]:
    """Yield the targets; without any, a server that is started for this run, as a process."""
    if addresses:
        yield addresses
        return
    async with own_server(log=folder / _SERVER_LOG) as server:
        yield [TargetAddress("own server", server.url, replace(options, server_pid=server.pid))]


async def measure(
    addresses: Sequence[TargetAddress],
    sections: Sequence[Section],
    style: Style,
    console: Console,
) -> list[dict[str, Any]]:
    """Put every load on every target, and show the progress on `console`.

    Returns:
        One document for each section and target.

    Raises:
        VoiceAgentError, OSError: a target cannot be reached.
    """
    documents: list[dict[str, Any]] = []
    targets = [(address, address.open()) for address in addresses]
    with counting_progress(console) as progress:
        for address, target in targets:
            meter = Meter(address.options.server_pid)
            for section in sections:
                total_s = section.warm_up_s + section.seconds
                name = f"{address.name}, {section.name}, seconds"
                task = progress.add_task(name, total=total_s)
                callers = Callers(target, _shown(progress, task, total_s))
                async with contextlib.aclosing(callers), meter.section():
                    traffic = await callers.run(section, style)
                    usage = meter.usage()
                progress.remove_task(task)
                figures = section_document(address.name, section, traffic, style.seed)
                documents.append(figures | usage.figures(traffic.audio_s, traffic.most_open))
    return documents


def _shown(progress: Progress, task: TaskID, total_s: float) -> Callable[[Utterance], None]:
    """Show how many seconds of a section have passed, each time an utterance has ended."""
    began = Recorder.now()
    return lambda _: progress.update(task, completed=min(total_s, Recorder.now() - began))


def table_of(sections: Sequence[dict[str, Any]]) -> Table:
    """The figures as a table: all of a few sections, or the main ones of many."""
    if len(sections) > _FEW_SECTIONS:
        return _table_of_many(sections)
    figures = [flat(section) for section in sections]
    rows = (
        [heading, *(format_figure(each.get(name)) for each in figures)]
        for name, heading in columns_of(figures).items()
    )
    return table("First audible sample and load", ["figure", *map(_name, sections)], rows)


def _table_of_many(sections: Sequence[dict[str, Any]]) -> Table:
    figures = [flat(section) for section in sections]
    rows = (
        [_name(each), *(format_figure(each.get(name)) for name in _MAIN_COLUMNS.values())]
        for each in figures
    )
    title = "First audible sample and load; times in ms"
    return table(title, ["section", *_MAIN_COLUMNS], rows)


def _name(section: dict[str, Any]) -> str:
    return f"{section['target']}, {section['load']}"


def counting_progress(console: Console) -> Progress:
    """A progress bar of counted things, which disappears when it ends."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)


def run_latency(
    targets: AbstractAsyncContextManager[Sequence[TargetAddress]],
    sections: Sequence[Section],
    style: Style,
    outputs: Outputs,
    command: str | None = None,
) -> dict[str, Any]:
    """Measure, print the table and the JSON line, and write the files; returns the document.

    Args:
        targets: yields what is measured, as `targets_or_own` does.
        sections: the loads.
        style: what is spoken, and how.
        outputs: where results go.
        command: the command line, if it was not this process's.

    Raises:
        VoiceAgentError, OSError: a target cannot be reached, or a file cannot be written.
    """
    origin = provenance(command)

    async def all_targets() -> list[dict[str, Any]]:
        async with targets as opened:
            if any(address.address.startswith("pipecat:") for address in opened):
                from voiceagent_tts.plugins.demo.pipecat_log import quiet

                quiet()
            return await measure(opened, sections, style, Console(stderr=True))

    documents = asyncio.run(all_targets())
    document = {
        "schema": SCHEMA,
        "kind": "latency",
        **origin,
        "seed": style.seed,
        "texts": len(style.texts),
        "sections": documents,
    }
    publish(document, outputs, table_of(documents), warnings_of(documents))
    return document


def publish(
    document: dict[str, Any],
    outputs: Outputs,
    table: RenderableType,
    warnings: Iterable[str] = (),
    *,
    line_of: Callable[[dict[str, Any]], str] = last_line,
    least_width: int = 0,
) -> None:
    """Print the table, the warnings and the last line, and write the files.

    Args:
        document: what was measured.
        outputs: the files.
        table: what is printed.
        warnings: sentences that are printed below the table.
        line_of: makes the last line.
        least_width: columns that the table has at least.

    Raises:
        OSError: a file cannot be written.
    """
    console, warnings = Console(), list(warnings)
    console.width = max(least_width, console.width)
    _show(console, table, warnings)
    sys.stdout.write(line_of(document) + "\n")  # before the files, which may fail
    sys.stdout.flush()
    if outputs.json is not None:
        write_document(document, outputs.json)
    if outputs.html is not None:
        outputs.html.parent.mkdir(parents=True, exist_ok=True)
        page = Console(record=True, file=StringIO(), width=max(least_width, _PAGE_WIDTH))
        _show(page, table, warnings)
        for name in ("command", "machine", "load_1_min", "versions", "commit", "started_at"):
            page.print(f"{name}: {document[name]}", highlight=False, markup=False)
        page.save_html(str(outputs.html))


def _show(console: Console, table: RenderableType, warnings: Iterable[str]) -> None:
    console.print(table)
    for warning in warnings:
        console.print(warning, style="yellow", highlight=False, markup=False)
