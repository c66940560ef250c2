"""The document and the table of a quality benchmark."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from voiceagent_tts.plugins.bench.figures import format_figure, table
from voiceagent_tts.plugins.bench.quality.measures import HEADINGS, Values
from voiceagent_tts.plugins.bench.statistics import mean

_DIGITS = 4


def section_of(part: str, group: str, count: int, values: Values) -> dict[str, Any]:
    """The document of one part, of a language or of failures, from `count` clips."""
    return {
        "part": part,
        "group": group,
        "clips": count,
        "measures": {name: _figure(of) for name, of in values.of.items()},
        "values": {name: [round(value, _DIGITS) for value in of] for name, of in values.of.items()},
        "examples": values.examples,
    }


def _figure(values: Sequence[float]) -> dict[str, Any]:
    found = mean(values)
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
    title = "Quality, means and 95 % intervals"
    headings = "target", "part", "figure", "clips", "mean", "interval"
    return table(title, headings, (row for each in sections for row in _rows(each)), names=3)


def _rows(section: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    names = section["target"], f"{section['part']} {section['group']}".strip()
    clips = str(section["clips"])
    if not section["measures"]:
        yield *names, "", clips, "", ""
    for name, figure in section["measures"].items():
        low, high = map(format_figure, figure["interval"])
        yield *names, HEADINGS[name], clips, format_figure(figure["mean"]), f"{low} to {high}"
