"""Draws the engine's steps over their rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.engine.roofline import STAGES
from voiceagent_tts.core import FRAME_S


def plot_sections(sections: Mapping[str, Sequence[dict[str, Any]]], path: Path) -> None:
    """Draw the steps of several sections, by title, one below the other in one file."""
    figure, grid = plt.subplots(
        len(sections), figsize=(8, 4.5 * len(sections)), layout="constrained", squeeze=False
    )
    for axes, (title, lines) in zip(grid[:, 0], sections.items(), strict=True):
        _draw(axes, title, lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw(axes: Axes, title: str, lines: Sequence[dict[str, Any]]) -> None:
    rows = [line["rows"] for line in lines]
    axes.plot(rows, [line["ms_per_frame"] for line in lines], "k.-", label="a step")
    for name in STAGES:
        axes.plot(rows, [line[f"{name}_ms"] for line in lines], ".-", label=name, linewidth=1)
    axes.plot(rows, [line["roofline_ms"] for line in lines], "k--", label="roofline")
    axes.axhline(FRAME_S * 1000, color="0.7", linewidth=0.8)
    axes.annotate("duration of a frame", (1, FRAME_S * 1000), va="bottom", color="0.5")
    axes.set(xscale="log", yscale="log", xlabel="rows", ylabel="ms for a frame of all rows")
    axes.set_xticks(rows, labels=[str(count) for count in rows])
    axes.minorticks_off()
    axes.set_title(title)
    axes.legend(ncols=2)
