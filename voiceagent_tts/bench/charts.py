"""Charts of the HTML report: markup whose text keeps its size, so that it reads on a phone too.

Positions are percentages of the plot; colours are CSS variables, so that both colour schemes work.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

COLORS = 6
"""Number of series colours in the style sheet."""
_ECDF_POINTS = 160


@dataclass(frozen=True, slots=True)
class Range:
    """One row of a range chart, in one unit.

    Attributes:
        label: what the row is about.
        color: number of its colour.
        low: start of the thick bar (p50).
        middle: its end (p95).
        high: end of the thin line (p99).
        interval: interval of `middle`.
        note: text at the end of the row.
    """

    label: str
    color: int
    low: float
    middle: float
    high: float
    interval: tuple[float, float]
    note: str


def nice_ticks(highest: float, count: int = 4) -> list[float]:
    """About `count` round numbers from zero to at least `highest`."""
    if not highest > 0:
        return [0.0, 1.0]
    rough = highest / count
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * 0.999)
    return [step * index for index in range(math.ceil(highest / step - 1e-9) + 1)]


def range_chart(rows: Sequence[Range], unit: str) -> str:
    """Rows with p50 as a dot, p95 as a bar's end with its interval, and p99 as a line's end."""
    ticks = nice_ticks(max((max(row.high, row.interval[1]) for row in rows), default=1))
    lines = [_range_row(row, ticks[-1]) for row in rows]
    return (
        f'<div class="ranges">{"".join(lines)}'
        f'<div class="range axis"><span></span><div class="track">{_tick_labels(ticks, unit)}</div>'
        "<span></span></div></div>"
    )


def _range_row(row: Range, highest: float) -> str:
    def at(value: float) -> str:
        return f"{100 * min(value, highest) / highest:.2f}%"

    def width(start: float, end: float) -> str:
        return f"{100 * max(0.0, min(end, highest) - start) / highest:.2f}%"

    low, high = row.interval
    return (
        f'<div class="range" style="--series:var(--c{row.color % COLORS})">'
        f'<span class="label">{escape(row.label)}</span><div class="track">'
        f'<i class="tail" style="left:{at(row.low)};width:{width(row.low, row.high)}"></i>'
        f'<i class="body" style="left:{at(row.low)};width:{width(row.low, row.middle)}"></i>'
        f'<i class="interval" style="left:{at(low)};width:{width(low, high)}"></i>'
        f'<i class="dot" style="left:{at(row.low)}"></i></div>'
        f'<span class="note">{escape(row.note)}</span></div>'
    )


def _tick_labels(ticks: Sequence[float], unit: str) -> str:
    last = len(ticks) - 1
    return "".join(
        f'<b style="left:{100 * tick / ticks[-1]:.2f}%">{tick:g}{unit if index == last else ""}</b>'
        for index, tick in enumerate(ticks)
    )


def ecdf_chart(series: Sequence[tuple[str, int, Sequence[float]]], unit: str) -> str:
    """Share of values up to each value: (label, colour, values) of each line.

    The axis ends near the largest p99, so that one outlier does not press all lines together.
    """
    series = [each for each in series if each[2]]
    ticks = nice_ticks(max((float(np.percentile(of, 99)) for _, _, of in series), default=1))
    lines = "".join(
        f'<polyline style="stroke:var(--c{color % COLORS})" points="{_steps(values, ticks[-1])}"/>'
        for _, color, values in series
    )
    grid = "".join(f'<line x1="0" x2="100" y1="{y}" y2="{y}"/>' for y in (5, 50))
    legend = "".join(
        f'<span style="--series:var(--c{color % COLORS})"><i></i>{escape(label)}</span>'
        for label, color, _ in series
    )
    return (
        f'<div class="legend">{legend}</div><div class="ecdf">'
        '<div class="shares"><b style="top:0%">100 %</b><b style="top:50%">50 %</b>'
        '<b style="top:100%">0</b></div>'
        '<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" '
        f'aria-label="distribution">{grid}{lines}</svg>'
        f'<div class="track">{_tick_labels(ticks, unit)}</div></div>'
    )


def _steps(values: Sequence[float], highest: float) -> str:
    ordered = sorted(values)
    stride = max(1, len(ordered) // _ECDF_POINTS)
    points = ["0,100"]
    for index in [*range(0, len(ordered), stride), len(ordered) - 1]:
        across = 100 * min(ordered[index], highest) / highest
        points.append(f"{across:.2f},{100 - 100 * (index + 1) / len(ordered):.2f}")
    return " ".join([*points, "100,0"])
