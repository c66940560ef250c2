"""The document, the table and the page of a quality benchmark.

The page shows what papers state beside what this run found, and says what was not run.
"""

import json
import tomllib
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from rich.table import Table

from voiceagent_tts.bench.html import format_figure, page, provenance_list
from voiceagent_tts.bench.quality.measures import MEASURES, Values, is_share
from voiceagent_tts.bench.statistics import Interval, mean, share

_DIGITS = 4
_MOST_EXAMPLES = 20
_FIRST = {
    "words": ("wer_percent", "cer_percent"),
    "pronunciation": ("pronounced_percent",),
    "outbursts": ("outburst_percent",),
    "continuity": ("click_percent",),
}
"""Part -> the measures of which one is on the card of a target."""


def section_of(part: str, group: str, count: int, values: Values) -> dict[str, Any]:
    """The document of one part and group.

    Args:
        part: name of the part.
        group: language or kind.
        count: number of clips.
        values: what was measured.
    """
    return {
        "part": part,
        "group": group,
        "clips": count,
        "measures": {name: _figure(name, of) for name, of in values.of.items()},
        "values": {name: [round(value, _DIGITS) for value in of] for name, of in values.of.items()},
        "examples": values.examples,
    }


def _figure(name: str, values: Sequence[float]) -> dict[str, Any]:
    """The mean; its interval is Wilson's for shares, which never has no width."""
    found, scale = mean(values), 1.0
    if is_share(name):
        found, scale = share(sum(value > 0 for value in values), len(values)), 100.0
    found = Interval(*(scale * each for each in (found.value, found.low, found.high)))
    ends = [round(found.low, _DIGITS), round(found.high, _DIGITS)]
    return {"n": len(values), "mean": round(found.value, _DIGITS), "interval": ends}


def last_line(document: dict[str, Any]) -> str:
    """The document as one line of JSON, without values and examples."""
    sections = [
        {name: of for name, of in section.items() if name not in ("values", "examples")}
        for section in document["sections"]
    ]
    return json.dumps(document | {"sections": sections}, ensure_ascii=False)


def table_of(sections: Sequence[dict[str, Any]]) -> Table:
    """One row for each figure, with its interval."""
    table = Table(title="Quality, means and 95 % intervals", box=None)
    for heading in ("target", "part", "clips"):
        table.add_column(heading, justify="right" if heading == "clips" else "left")
    for heading in ("figure", "mean", "interval"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for section in sections:
        names = section["target"], f"{section['part']} {section['group']}".strip()
        if not section["measures"]:
            table.add_row(*names, str(section["clips"]), "", "", "")
        for name, figure in section["measures"].items():
            low, high = map(format_figure, figure["interval"])
            value = format_figure(figure["mean"])
            table.add_row(*names, str(section["clips"]), MEASURES[name].heading, value,
                          f"{low} to {high}")  # fmt: skip
    return table


def render(document: dict[str, Any], title: str = "How well does it speak?") -> str:
    """The page of a run."""
    sections = document["sections"]
    targets = list(dict.fromkeys(section["target"] for section in sections))
    judges = ", ".join(f"{part} by {name}" for part, name in document["judged_by"].items())
    lead = (
        f"{', '.join(targets)}: {sum(each['clips'] for each in sections):,} clips on "
        f"{document['started_at'][:10]}. {f'Judged: {judges}.' if judges else ''}"
    )
    not_run = "".join(
        f'<p class="warning">{escape(part)}: not run, {escape(reason)}</p>'
        for part, reason in document["not_run"].items()
    )
    body = "".join(
        [_cards(sections, targets), "<h2>All figures</h2>", _figures(sections), not_run,
         _published(sections), _examples(sections), _definitions(sections),
         provenance_list({"seed": "each item's own", **document})]
    )  # fmt: skip
    return page(title, lead, body)


def _cards(sections: Sequence[dict[str, Any]], targets: Sequence[str]) -> str:
    """For each target, the first figure of each part."""
    cards: list[str] = []
    for section in sections:
        name = next(
            (each for each in _FIRST.get(section["part"], section["measures"])
             if each in section["measures"]), None,
        )  # fmt: skip
        if name is None:
            continue
        figure = section["measures"][name]
        low, high = map(format_figure, figure["interval"])
        cards.append(
            f'<div class="card" style="--series:var(--c{targets.index(section["target"]) % 6})">'
            f"<h3>{escape(section['target'])}, {escape(section['part'])} "
            f"{escape(section['group'])}</h3>"
            f'<div class="big">{format_figure(figure["mean"])} '
            f"<small>{escape(MEASURES[name].heading)}</small></div>"
            f"<ul><li>{low} to {high}</li><li>{section['clips']} clips</li></ul></div>"
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _figures(sections: Sequence[dict[str, Any]]) -> str:
    rows = [
        [f"{section['target']}, {section['part']} {section['group']}", section["clips"],
         MEASURES[name].heading, format_figure(figure["mean"]),
         " to ".join(map(format_figure, figure["interval"]))]
        for section in sections
        for name, figure in section["measures"].items()
    ]  # fmt: skip
    return _table(("section", "clips", "figure", "mean", "95 % interval"), rows)


def _published(sections: Sequence[dict[str, Any]]) -> str:
    """What papers state, beside this run; only equal sets and judges can be compared."""
    rows = [
        [each["set"], each["system"], MEASURES[each["measure"]].heading + f", {each['group']}",
         each["value"], _ours(sections, each), each["judge"]]
        for each in published()
    ]  # fmt: skip
    table = _table(("set", "system", "figure", "paper", "this run", "judge of the paper"), rows)
    return (
        "<h2>What papers state</h2><p>Figures compare only on the same texts and with the same "
        "judge. “Not run” means that this run has no figure of the kind."
        f'</p>{table}<p class="small">Source: {escape(_published_file()["source"])}</p>'
    )


def _ours(sections: Sequence[dict[str, Any]], stated: dict[str, Any]) -> str:
    found = [
        f"{section['target']}: {format_figure(section['measures'][stated['measure']]['mean'])}"
        for section in sections
        if stated["group"] in (section["group"], "all") and stated["measure"] in section["measures"]
    ]
    return "; ".join(found) or "not run"


def published() -> list[dict[str, Any]]:
    """Figures of papers: set, system, measure, group, value, judge."""
    return _published_file()["figures"]


@cache
def _published_file() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("published.toml").read_text("utf-8"))


def _examples(sections: Sequence[dict[str, Any]]) -> str:
    parts: list[str] = []
    for section in sections:
        examples = section["examples"][:_MOST_EXAMPLES]
        if examples:
            names = list(dict.fromkeys(name for each in examples for name in each))
            rows = [[each.get(name, "") for name in names] for each in examples]
            title = f"{section['target']}, {section['part']} {section['group']}"
            parts.append(f"<h3>{escape(title)}</h3>{_table(names, rows)}")
    return f"<h2>What to listen to</h2>{''.join(parts)}" if parts else ""


def _definitions(sections: Sequence[dict[str, Any]]) -> str:
    names = dict.fromkeys(name for section in sections for name in section["measures"])
    rows = "".join(
        f"<dt>{escape(MEASURES[name].heading)}</dt><dd>{escape(MEASURES[name].title)}</dd>"
        for name in names
    )
    return f"<h2>What is measured</h2><dl>{rows}</dl>"


def _table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    heads = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><tr>{heads}</tr>{lines}</table></div>'
