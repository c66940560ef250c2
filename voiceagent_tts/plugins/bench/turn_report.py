"""What a run of whole turns says: sections of its document, and a table."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from voiceagent_tts.plugins.bench.document import measures_of
from voiceagent_tts.plugins.bench.stage_clock import STAGES, Stage, StageClock

_TOTAL = "total_ms"


def _name(stage: Stage) -> str:
    """Its name in documents."""
    return f"{stage.value.lower()}_ms"


def section_of(host: str, clock: StageClock) -> dict[str, Any]:
    """The section of a host: its measures in milliseconds, and all values."""
    values = {_name(stage): [1000 * turn.stages[stage] for turn in clock.turns] for stage in STAGES}
    values[_TOTAL] = [1000 * turn.total_s for turn in clock.turns]
    return {"target": host, "load": "turns", "turns": len(clock.turns), **measures_of(values)}


def table_of(sections: Sequence[dict[str, Any]]) -> Table:
    """The stages of every host."""
    table = Table(title="end of speech to first audible sample, ms", box=None)
    for heading in ("host", "turns", "stage", "p50", "p95", "95 % interval of p50"):
        table.add_column(heading, justify="left" if heading in ("host", "stage") else "right")
    for section in sections:
        host, turns = section["target"], str(section["turns"])
        for name, figures in section["measures"].items():
            table.add_row(host, turns, _heading(name), *_cells(figures))
            host = turns = ""
    return table


def _heading(name: str) -> str:
    return "total" if name == _TOTAL else name.removesuffix("_ms").upper()


def _cells(figures: dict[str, Any]) -> tuple[str, str, str]:
    low, high = figures["p50_interval"]
    return f"{figures['p50']:,.0f}", f"{figures['p95']:,.0f}", f"{low:,.0f} to {high:,.0f}"
