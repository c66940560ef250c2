"""The HTML report of a run: one file without scripts, fonts or links to other sites."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from voiceagent_tts.bench.charts import Range, ecdf_chart, range_chart
from voiceagent_tts.bench.document import GOOD_AUDIBLE_MS, GOOD_UNDERRUN_MS, flat
from voiceagent_tts.bench.measures import MEASURES

_STYLE = Path(__file__).with_name("report.css")
_FEW = 20
_MOST_LAG_MS = 10.0
"""Lag of the client's own event loop from which its figures are doubtful."""

COLUMNS = {
    "utterances": "utterances",
    "failed": "failed",
    "first_byte_p50_ms": "first byte p50, ms",
    "audible_p50_ms": "audible p50, ms",
    "audible_p95_ms": "p95, ms",
    "audible_p99_ms": "p99, ms",
    "with_underruns": "with underruns",
    "lateness_p99_ms": "lateness p99, ms",
    "e2e_p50_ms": "whole p50, ms",
    "rtf_p50": "RTF p50",
    "audio_s_per_s": "audio s/s",
    "chars_per_s": "chars/s",
    "usd_per_million_chars": "$/M chars",
    "word_lag_p95_ms": "word lag p95, ms",
    "last_frame_p95_ms": "interruption to last audio p95, ms",
    "bytes_after_cancel_p50": "bytes after it, p50",
    "wasted_p50_s": "wasted p50, s",
    "good_percent": "served well, %",
    "server_cpu_percent": "server CPU of a stream, % of a core",
    "server_mb_per_stream": "server memory of a stream, MiB",
}
"""Columns of the tables: name in `flat`, heading."""


def columns_of(sections: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The columns for which some section has a figure."""
    figures = [flat(section) for section in sections]
    return {
        name: heading
        for name, heading in COLUMNS.items()
        if any(each.get(name) is not None for each in figures)
    }


def page(title: str, lead: str, body: str) -> str:
    """A whole page with the report's style."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE.read_text('utf-8')}</style></head>"
        f'<body><main><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>'
        f"{body}</main></body></html>\n"
    )


def render(document: dict[str, Any], title: str = "How soon does it speak?") -> str:
    """The report of a run."""
    sections = document["sections"]
    targets = list(dict.fromkeys(section["target"] for section in sections))
    lead = (
        f"{len(targets)} {'targets' if len(targets) > 1 else 'target'}, "
        f"{sum(section['utterances'] for section in sections):,} utterances, measured at the "
        f"client on {document['started_at'][:10]}."
    )
    body = "".join(
        [
            _cards(sections, targets),
            _ranges(sections, targets),
            _distributions(sections, targets),
            "<h2>All figures</h2>",
            figures_table(sections),
            _warnings(sections),
            _definitions(sections),
            provenance_list(document),
        ]
    )
    return page(title, lead, body)


def _cards(sections: Sequence[dict[str, Any]], targets: Sequence[str]) -> str:
    """One card for each target: its lightest load."""
    cards: list[str] = []
    for color, target in enumerate(targets):
        section = flat(next(each for each in sections if each["target"] == target))
        audible_ms = section.get("audible_p50_ms")
        big = "no sound" if audible_ms is None else f"{audible_ms:,.0f} <small>ms</small>"
        facts = [
            f"to the first audible sample, p50, {section['load']}",
            f"p95 {section.get('audible_p95_ms', 0):,.0f} ms",
            f"{section['with_underruns']} of {section['utterances']} with an underrun",
            f"{section['failed']} failed",
        ]
        items = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
        cards.append(
            f'<div class="card" style="--series:var(--c{color % 6})"><h3>{escape(target)}</h3>'
            f'<div class="big">{big}</div><ul>{items}</ul></div>'
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _ranges(sections: Sequence[dict[str, Any]], targets: Sequence[str]) -> str:
    rows = [
        Range(
            f"{section['target']}, {section['load']}",
            targets.index(section["target"]),
            measure["p50"],
            measure["p95"],
            measure["p99"],
            tuple(measure["p95_interval"]),
            f"{measure['p50']:,.0f} / {measure['p95']:,.0f}",
        )
        for section in sections
        if (measure := section["measures"].get("audible_ms"))
    ]
    if not rows:
        return ""
    return (
        "<h2>First audible sample</h2><p>From the moment an utterance was planned to the first "
        "sample that a listener hears. Dot: median. Bar: to p95, with its 95 % interval. Line: to "
        f'p99. Right: p50 / p95.</p><div class="panel">{range_chart(rows, " ms")}</div>'
    )


def _distributions(sections: Sequence[dict[str, Any]], targets: Sequence[str]) -> str:
    parts: list[str] = []
    for load in dict.fromkeys(section["load"] for section in sections):
        lines = [
            (each["target"], targets.index(each["target"]), each["values"].get("audible_ms", []))
            for each in sections
            if each["load"] == load
        ]
        if any(len(values) > 1 for _, _, values in lines):
            chart = ecdf_chart(lines, " ms")
            parts.append(f'<h3>{escape(load)}</h3><div class="panel">{chart}</div>')
    if not parts:
        return ""
    return (
        "<h2>All utterances</h2><p>Share of the utterances whose first audible sample came by "
        f"then, up to p99.</p>{''.join(parts)}"
    )


def figures_table(sections: Sequence[dict[str, Any]]) -> str:
    """Every section as a row."""
    columns = columns_of(sections)
    heads = "".join(f"<th>{escape(heading)}</th>" for heading in columns.values())
    rows = "".join(
        f"<tr><td>{escape(section['target'])}, {escape(section['load'])}</td>"
        + "".join(_cell(name, flat(section).get(name)) for name in columns)
        + "</tr>"
        for section in sections
    )
    return f'<div class="scroll"><table><tr><th>section</th>{heads}</tr>{rows}</table></div>'


def _cell(name: str, value: Any) -> str:
    is_bad = name in ("failed", "with_underruns") and value
    return f"<td{' class=bad' if is_bad else ''}>{format_figure(value)}</td>"


def format_figure(value: Any) -> str:
    """A figure with about three digits; a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _warnings(sections: Sequence[dict[str, Any]]) -> str:
    return "".join(f'<p class="warning">{escape(warning)}</p>' for warning in warnings_of(sections))


def warnings_of(sections: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What makes figures doubtful."""
    for section in sections:
        name = f"{section['target']}, {section['load']}"
        if (section["client_lag_p99_ms"] or 0) > _MOST_LAG_MS:
            yield (
                f"{name}: the client itself was up to {section['client_lag_p99_ms']:.0f} ms late "
                "(p99), and its figures include that. Use a machine with more free cores."
            )
        if section["utterances"] < _FEW:
            yield f"{name}: p95 and p99 of {section['utterances']} utterances are their largest."
        for failure, count in section["failures"].items():
            yield f"{name}: {count} of {section['utterances']} failed with {failure}."


def _definitions(sections: Sequence[dict[str, Any]]) -> str:
    names = dict.fromkeys(name for section in sections for name in section["measures"])
    rows = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(MEASURES[name].title)}</dd>" for name in names
    )
    return (
        "<h2>What is measured</h2><p>Latencies count from the planned start of an utterance, so a "
        "server that delays its callers cannot hide it. A player that starts with the first piece "
        "of audio decides what an underrun is. A sample is audible from 1 % of full scale. Served "
        f"well: sound within {GOOD_AUDIBLE_MS:.0f} ms and less than {GOOD_UNDERRUN_MS:.0f} ms of "
        "underruns. Intervals are 95 % bootstrap intervals. The CPU of a stream is what all "
        "processes of the server use for a second of its audio; its memory is what they have "
        "grown by since before the target's first section, divided by the most streams at once.</p>"
        f"<dl>{rows}</dl>"
    )


def provenance_list(document: dict[str, Any]) -> str:
    """Machine, versions, commit and command."""
    versions = ", ".join(f"{name} {of}" for name, of in document["versions"].items())
    facts = {
        "Machine": document["machine"],
        "Load at the start": document["load_1_min"],
        "Versions": versions,
        "Commit": document["commit"],
        "Seed": document["seed"],
        "Price": f"US$ {document['usd_per_hour']:g} an hour"
        if document.get("usd_per_hour") is not None
        else None,
    }
    rows = "".join(
        f"<dt>{name}</dt><dd>{escape(str(fact))}</dd>"
        for name, fact in facts.items()
        if fact is not None
    )
    return (
        f"<h2>How to repeat it</h2><p><code>{escape(document['command'])}</code></p><dl>{rows}</dl>"
    )
