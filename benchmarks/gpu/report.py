"""What `benchmarks.gpu` has found on a card: tables, plots, and every target beside its figure."""

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.engine.figures import table_of

Found = Mapping[str, Mapping[str, Any]]
"""Section -> its figures."""


@dataclass(frozen=True, slots=True)
class Target:
    """A figure, and what it is held to.

    Attributes:
        claim: for people.
        section: that measures it.
        figure: its name there, after those of the objects that it lies in.
        bound: whether `limit` is the most or the least.
        limit: in the figure's unit.
    """

    claim: str
    section: str
    figure: tuple[str, ...]
    bound: Literal["<=", ">="]
    limit: float

    def judge(self, found: Found) -> dict[str, Any]:
        """What was measured, None where nothing was, and whether it holds."""
        measured: Any = found.get(self.section, {})
        for name in self.figure:
            measured = measured.get(name) if measured else None
        holds = None
        if measured is not None:
            holds = measured <= self.limit if self.bound == "<=" else measured >= self.limit
        return {"target": f"{self.bound} {self.limit:g}", "measured": measured, "holds": holds}


TARGETS = (
    Target("1.7B, ms a frame, 1 row", "engine-1.7b", ("ms_per_frame_1",), "<=", 5),
    Target("1.7B, ms a frame, 256 rows", "engine-1.7b", ("ms_per_frame_256",), "<=", 15),
    Target("1.7B, s to load and capture, 64 rows", "quick-1.7b", ("load_s",), "<=", 60),
    *(
        Target(f"1.7B at {rate}/s, {figure}", "load-1.7b",
               ("sections", f"{rate}/s", figure), "<=", limit)
        for rate, p95_ms in ((1, 20), (20, 40))
        for figure, limit in (("audible_ttfa_p95_ms", p95_ms), ("underruns", 0), ("failed", 0))
    ),
    Target("1.7B, 256 together, audio s/s", "load-1.7b",
           ("sections", "256 together", "audio_seconds_per_s"), ">=", 300),
    Target("1.7B, 256 together, underruns", "load-1.7b",
           ("sections", "256 together", "underruns"), "<=", 0),
    Target("1.7B, 256 paced, underruns", "paced-1.7b", ("underruns",), "<=", 0),
    Target("graphs: share of equal codes", "exactness", ("graph_codes_equal",), ">=", 1),
    Target("float32: share of the CPU's choices", "exactness", ("cpu_agreement",), ">=", 0.999),
    Target("1.7B under a cap of 8 GB", "cap-1.7b", ("used_gb",), "<=", 8 * 1.05),
    Target("0.6B under a cap of 6 GB", "cap-0.6b", ("used_gb",), "<=", 6 * 1.05),
    Target("first audio, faster / ours", "peers-1.7b", ("first_audio_ratio_faster",), ">=", 4),
    Target("frames a second, ours / faster", "peers-1.7b", ("frames_ratio_faster",), ">=", 4),
)  # fmt: skip


def verdicts(found: Found) -> dict[str, dict[str, Any]]:
    """Every target beside what was measured."""
    return {target.claim: target.judge(found) for target in TARGETS}


def _target_table(judged: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table("target", "wanted", "measured", "", title="Targets")
    words = {True: "holds", False: "[bold]missed[/]", None: "not measured"}
    for claim, verdict in judged.items():
        measured = "" if verdict["measured"] is None else f"{verdict['measured']:g}"
        table.add_row(claim, verdict["target"], measured, words[verdict["holds"]])
    return table


def _figure_table(section: str, figures: Mapping[str, Any]) -> Table:
    table = Table(title=section, box=None, show_header=False)
    for name, value in figures.items():
        if name != "lines":
            table.add_row(name, json.dumps(value))
    return table


def _step_sections(found: Found) -> list[tuple[str, Sequence[dict[str, Any]]]]:
    return [(section, figures["lines"]) for section, figures in found.items() if "lines" in figures]


def _plot(found: Found, path: Path) -> None:
    """Draw what steps take, section by section; a machine without matplotlib leaves it to one."""
    if importlib.util.find_spec("matplotlib") is None:
        return
    from benchmarks.engine.plot import plot

    for section, lines in _step_sections(found):
        title = f"{found[section]['model']} on {found[section]['device']} ({section})"
        plot(title, lines, path.with_name(f"{path.stem}-{section}.png"))


def main(
    results: Annotated[Path, typer.Argument(help="As benchmarks.gpu has written it.")],
) -> None:
    """Print what was found, and draw it beside the file."""
    found: Found = json.loads(results.read_text()) if results.exists() else {}
    console = Console()
    for section, figures in found.items():
        console.print(_figure_table(section, figures))
        if "lines" in figures:
            console.print(table_of(f"{section}: ms for a frame of all rows", figures["lines"]))
    _plot(found, results)
    judged = verdicts(found)
    console.print(_target_table(judged))
    print(json.dumps({"card": results.stem, "sections": list(found), "targets": judged}))


if __name__ == "__main__":
    typer.run(main)
