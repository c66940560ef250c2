"""What `benchmarks.gpu` has found on a card: tables, and every target beside its figure.

Standard library only.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.gpu.record import Record

Figures = Mapping[str, Any]

_STEP_COLUMNS = (
    "rows", "ms_per_frame", "max_ms", "predictor_ms", "talker_ms", "codec_ms", "host_ms",
    "prefill_ms", "ms_without_codec", "audio_s_per_s",
)  # fmt: skip
_NOT_PRINTED = ("lines", "outcomes", "fused_traceback")


@dataclass(frozen=True, slots=True)
class Target:
    """A figure and its limit.

    Attributes:
        claim: what is claimed, for people.
        section: section that measures the figure.
        figure: name of the figure, after those of the objects that it lies in.
        bound: whether `limit` is the largest or the smallest value.
        limit: limit in the figure's unit.
    """

    claim: str
    section: str
    figure: tuple[str, ...]
    bound: Literal["<=", ">="]
    limit: float

    def judge(self, found: Mapping[str, Figures]) -> dict[str, Any]:
        """Return what was measured, and whether it holds; None for both if nothing was."""
        measured: Any = found.get(self.section, {})
        for name in self.figure:
            measured = measured.get(name) if measured else None
        holds = None
        if measured is not None:
            holds = measured <= self.limit if self.bound == "<=" else measured >= self.limit
        return {"target": f"{self.bound} {self.limit:g}", "measured": measured, "holds": holds}


TARGETS = (
    Target("1.7B, ms a frame, 1 row", "quick-1.7b", ("lines", "1", "ms_per_frame"), "<=", 5),
    Target("1.7B, ms a frame, 256 rows", "quick-1.7b", ("lines", "256", "ms_per_frame"), "<=", 22),
    Target("1.7B, s to load and capture, 256 rows", "quick-1.7b", ("load_s",), "<=", 60),
    *(
        Target(f"1.7B at {rate}/s, {figure}", "load-1.7b",
               ("sections", f"{rate}/s", figure), "<=", limit)
        for rate, p95_ms in ((1, 20), (20, 40))
        for figure, limit in (("audible_p95_ms", p95_ms), ("underruns", 0), ("failed", 0))
    ),
    Target("1.7B, 256 together, audio s/s", "load-1.7b",
           ("sections", "256 at once", "audio_s_per_s"), ">=", 300),
    Target("1.7B, 256 together, underruns", "load-1.7b",
           ("sections", "256 at once", "underruns"), "<=", 0),
    Target("1.7B, 256 paced, underruns", "paced-1.7b", ("underruns",), "<=", 0),
    Target("tests that need a GPU, failed", "tests", ("failed",), "<=", 0),
    Target("1.7B under a cap of 8 GB", "cap-1.7b", ("used_gb",), "<=", 8 * 1.05),
    Target("0.6B under a cap of 6 GB", "cap-0.6b", ("used_gb",), "<=", 6 * 1.05),
)  # fmt: skip


def fallbacks(figures: Figures) -> list[str]:
    """Return which parts of a section ran slower than intended, with the reasons."""
    meanings = {
        "kernel_fault": "PLAIN KERNELS RAN, NOT THE FUSED ONES",
        "codec_fault": "A PLAIN CODEC RAN, NOT THE FUSED ONE",
        "restart_fault": "LOADED AGAIN WITH LESS",
    }
    return [f"{said}: {figures[name]}" for name, said in meanings.items() if figures.get(name)]


def report(record: Record) -> Iterator[str]:
    """Yield the lines of a report on a run's results; the last one is a JSON object."""
    known, found = record.read(), record.figures()
    slow: dict[str, list[str]] = {}
    for section, figures in found.items():
        if fallbacks(figures):
            slow[section] = fallbacks(figures)
        yield from ("", f"--- {section} on {figures.get('device', known['card'])}")
        yield from (f"!!! {fallback}" for fallback in slow.get(section, ()))
        yield from _section_lines(figures)
    states = [(name, each["took_s"], each["state"]) for name, each in known["sections"].items()]
    yield from _text_table(("section", "s", "state"), states)
    judged = {target.claim: target.judge(found) for target in TARGETS}
    words = {True: "holds", False: "MISSED", None: "not measured"}
    verdicts = [
        (claim, each["target"], each["measured"], words[each["holds"]])
        for claim, each in judged.items()
    ]
    yield from _text_table(("target", "wanted", "measured", ""), verdicts)
    last = {"card": known["card"], "sections": list(found), "fallbacks": slow, "targets": judged}
    yield json.dumps(last)


def _section_lines(figures: Figures) -> Iterator[str]:
    for name, value in figures.items():
        if name in _NOT_PRINTED:
            continue
        if isinstance(value, dict) and all(isinstance(inner, dict) for inner in value.values()):
            yield from (f"{name}, {inner}: {json.dumps(value[inner])}" for inner in value)
        else:
            yield f"{name}: {json.dumps(value)}"
    if "lines" in figures:
        lines = sorted(figures["lines"].values(), key=lambda line: line["rows"])
        rows = [[f"{line.get(name, 0):g}" for name in _STEP_COLUMNS] for line in lines]
        yield from _text_table(_STEP_COLUMNS, rows)


def _text_table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield an empty line, and the lines of a table, its columns as wide as their longest cell."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    yield ""
    for row in cells:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()
