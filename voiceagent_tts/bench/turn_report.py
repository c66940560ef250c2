"""What a run of whole turns says: sections of its document, a table, and a page."""

from collections.abc import Sequence
from html import escape
from typing import Any

from rich.table import Table

from voiceagent_tts.bench.document import measures_of
from voiceagent_tts.bench.html import page, provenance_list
from voiceagent_tts.bench.stage_clock import STAGES, Stage, StageClock

_DEFINITIONS = {
    Stage.VAD: "From the user's last audible sample until voice activity detection reports the end "
    "of speech.",
    Stage.STT: "Until the transcript is complete; nothing where it was complete before.",
    Stage.LLM: "Until the language model's first token reaches the voice. The host's decision that "
    "the user's turn is over is in it.",
    Stage.TTS: "Until the first audible sample is played.",
}
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


def render_turns(document: dict[str, Any]) -> str:
    """The page of a run."""
    sections = document["sections"]
    lead = (
        f"{sum(section['turns'] for section in sections):,} turns in "
        f"{' and '.join(section['target'] for section in sections)}, in real time, measured on "
        f"{document['started_at'][:10]}."
    )
    body = "".join(
        [
            _cards(sections),
            _bars(sections),
            "<h2>All figures</h2>",
            _figures(sections),
            _definitions(),
            provenance_list(document),
        ]
    )
    return page("How soon does the agent answer?", lead, body)


def _cards(sections: Sequence[dict[str, Any]]) -> str:
    cards = "".join(
        f'<div class="card" style="--series:var(--c{color % 6})"><h3>{escape(each["target"])}</h3>'
        f'<div class="big">{each["measures"][_TOTAL]["p50"]:,.0f} <small>ms</small></div><ul>'
        "<li>end of speech to first audible sample, p50</li>"
        f"<li>p95 {each['measures'][_TOTAL]['p95']:,.0f} ms</li>"
        f"<li>{each['turns']} turns</li></ul></div>"
        for color, each in enumerate(sections)
    )
    return f'<div class="cards">{cards}</div>'


def _bars(sections: Sequence[dict[str, Any]]) -> str:
    longest_ms = max(each["measures"][_TOTAL]["mean"] for each in sections)
    legend = "".join(
        f'<span style="--series:var(--c{color})"><i></i>{stage.value}</span>'
        for color, stage in enumerate(STAGES)
    )
    rows = "".join(_bar(each, longest_ms) for each in sections)
    return (
        "<h2>Where the time goes</h2><p>The mean of each stage, one after the other; medians of "
        f'stages do not add up.</p><div class="panel"><div class="legend">{legend}</div>{rows}'
        "</div>"
    )


def _bar(section: dict[str, Any], longest_ms: float) -> str:
    means_ms = [section["measures"][_name(stage)]["mean"] for stage in STAGES]
    parts = "".join(
        f'<i style="--series:var(--c{color});width:{100 * mean_ms / longest_ms:.2f}%" '
        f'title="{stage.value} {mean_ms:.0f} ms"></i>'
        for color, (stage, mean_ms) in enumerate(zip(STAGES, means_ms, strict=True))
    )
    note = " + ".join(f"{mean_ms:,.0f}" for mean_ms in means_ms)
    return (
        f'<div class="stack"><span>{escape(section["target"])}</span>'
        f'<div class="parts">{parts}</div><span class="note">{note} = {sum(means_ms):,.0f} ms'
        "</span></div>"
    )


def _figures(sections: Sequence[dict[str, Any]]) -> str:
    headings = ("stage", "p50, ms", "p95, ms", "95 % interval of p50")
    heads = "".join(f"<th>{heading}</th>" for heading in headings)
    rows = "".join(
        f"<tr><td>{escape(section['target'])}, {_heading(name)}</td>"
        + "".join(f"<td>{cell}</td>" for cell in _cells(figures))
        + "</tr>"
        for section in sections
        for name, figures in section["measures"].items()
    )
    return f'<div class="scroll"><table><tr>{heads}</tr>{rows}</table></div>'


def _definitions() -> str:
    rows = "".join(
        f"<dt>{stage.value}</dt><dd>{escape(text)}</dd>" for stage, text in _DEFINITIONS.items()
    )
    return f"<h2>What is measured</h2><dl>{rows}</dl>"
