"""Makes the README's tables of latencies and of speed: `make bench-readme`, which takes 4 minutes.

Our two doors and the usual wrapper of a speech model with the embedded voice, and our WebSocket
with hibari, on this machine: alone, beside 20 talkers and beside 60. Then how fast hibari and
Kokoro speak with one thread and with two. The figures go to `benchmarks/results/readme.json`, and
the tables made of them to README.md; `--seconds 1 --no-write` tries it in one minute.
"""

import contextlib
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.service.speed import speed_of
from voiceagent_tts.client import http_address
from voiceagent_tts.plugins.bench.callers import Section
from voiceagent_tts.plugins.bench.document import last_line
from voiceagent_tts.plugins.bench.figures import format_figure
from voiceagent_tts.plugins.bench.loads import Load, Style
from voiceagent_tts.plugins.bench.own_server import own_server
from voiceagent_tts.plugins.bench.run import Outputs, run_latency
from voiceagent_tts.plugins.bench.targets.addresses import TargetAddress
from voiceagent_tts.plugins.bench.targets.target import Options
from voiceagent_tts.plugins.bench.texts import choose_texts
from voiceagent_tts.plugins.demo.demo_server import server_process

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
FIGURES = ROOT / "benchmarks" / "results" / "readme.json"
START = "<!-- made by `make bench-readme` -->\n"
END = "<!-- end of what it made -->\n"
_WRAPPER = ("-m", "benchmarks.service.whole_utterance")
_COMMAND = "make bench-readme"
_LOADS = (Load(together=1), Load(together=20, think_s=1.5), Load(together=60, think_s=1.5))
_WARM_UP_S = 2.0
_COLUMNS = {
    "first byte p50": "first_byte_p50_ms",
    "audible p50": "audible_p50_ms",
    "audible p95": "audible_p95_ms",
    "underruns": "underruns",
    "utterances": "utterances",
    "CPU of a stream, %": "server_cpu_percent",
    "memory of a stream, MiB": "server_mb_per_stream",
}


@contextlib.asynccontextmanager
async def peers(folder: Path) -> AsyncIterator[Sequence[TargetAddress]]:
    """Yield our two endpoints and the wrapper, with the embedded voice, and a server of hibari.

    Args:
        folder: folder of the servers' logs.
    """
    embedded, natural = ({"VOICEAGENT_TTS_ENGINE": name} for name in ("espeak", "hibari"))
    async with (
        own_server(log=folder / "bench-server.log", environment=embedded) as server,
        own_server(log=folder / "natural-server.log", environment=natural) as hibari,
        server_process(_WRAPPER, folder / "bench-peer.log", {}) as wrapper,
    ):
        ours = Options(server_pid=server.pid)
        unpaced = replace(ours, arguments={"max_lead_s": 0})
        yield [
            TargetAddress("ours, WebSocket", server.url, ours),
            TargetAddress("ours, WebSocket, unpaced", server.url, unpaced),
            TargetAddress("ours, HTTP", http_address(server.url, ""), ours),
            TargetAddress("whole utterances, HTTP", wrapper.url, Options(server_pid=wrapper.pid)),
            TargetAddress("hibari, WebSocket", hibari.url, Options(server_pid=hibari.pid)),
        ]


def table_of(document: dict[str, Any]) -> str:
    """The tables in Markdown, and the sentence that says where their figures are from.

    Args:
        document: a document of `bench latency` without values, as its last line has it, with the
            figures of `speed_of` as `speed`.
    """
    rows = [
        f"| {section['target']} | {section['load']} | "
        + " | ".join(format_figure(section.get(name)) for name in _COLUMNS.values())
        + " |"
        for section in document["sections"]
    ]
    heads = " | ".join(["server, times in ms", "load", *_COLUMNS])
    return "\n".join(
        [
            f"| {heads} |",
            "|---" * (2 + len(_COLUMNS)) + "|",
            *rows,
            "",
            *_speed_table(document.get("speed", [])),
            f"`{document['command']}` on {document['started_at'][:10]}: "
            f"{_in_words(document['machine'])}; load {document['load_1_min']:g} at the "
            f"start; commit {document['commit']}.",
            "",
        ]
    )


def _speed_table(speed: list[dict[str, Any]]) -> list[str]:
    if not speed:
        return []
    rows = [f"| {each['voice']} | {each['threads']} | {each['rtf']:.3f} |" for each in speed]
    return ["| voice, two texts at once | threads | RTF |", "|---|---|---|", *rows, ""]


def _in_words(machine: str) -> str:
    """`2 x CPU, Linux` as `2 cores of a CPU, Linux`."""
    machine = re.sub(r"^(\d+) x (?=[AEIOU])", r"\1 cores of an ", machine)
    return re.sub(r"^(\d+) x ", r"\1 cores of a ", machine)


def put(page: str, table: str) -> str:
    """The page with `table` between its two marks.

    Raises:
        ValueError: it does not have each of them once.
    """
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end or START in rest or END in after:
        raise ValueError("expected both marks of the table once, in order")
    return f"{before}{START}{table}{END}{after}"


def main(
    seconds: Annotated[float, typer.Option(help="Duration of each section.")] = 6.0,
    out: Annotated[Path, typer.Option(help="Folder for logs.")] = Path("out"),
    write: Annotated[bool, typer.Option(help="Write the figures and the README.")] = True,
) -> None:
    """Measure, write the figures and the tables."""
    document = run_latency(
        peers(out),
        [Section(load, seconds, _WARM_UP_S) for load in _LOADS],
        Style(choose_texts(["en"], ["short", "menu"])),
        Outputs(out),
        _COMMAND,
    )
    figures = json.loads(last_line(document)) | {"speed": list(speed_of())}
    if not write:
        print(table_of(figures))
        return
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    README.write_text(put(README.read_text("utf-8"), table_of(figures)), "utf-8")


if __name__ == "__main__":
    typer.run(main)
