"""Plots of `benchmarks.service.load`: time to first audio and underruns by load."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

Figures = dict[str, dict[str, Any]]


def plot(figures: Figures, limit_ms: float, path: Path) -> None:
    """Write a PNG with one column for the open loop and one for the closed loop."""
    loops = {
        "calls a second": {name: of for name, of in figures.items() if name.endswith("/s")},
        "calls together": {name: of for name, of in figures.items() if name.endswith("together")},
    }
    loops = {label: loop for label, loop in loops.items() if loop}
    drawing, grid = plt.subplots(
        2, len(loops), figsize=(5.5 * len(loops), 7), layout="constrained", squeeze=False
    )
    for column, (label, loop) in enumerate(loops.items()):
        _draw_answers(grid[0][column], loop, limit_ms)
        _draw_work(grid[1][column], loop)
        grid[1][column].set_xlabel(label)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=120)
    plt.close(drawing)


def _draw_answers(axes: Axes, loop: Figures, limit_ms: float) -> None:
    names = [name.split("/")[0].split()[0] for name in loop]
    for rank in ("p50", "p95", "p99"):
        axes.plot(names, [of[f"audible_ttfa_{rank}_ms"] for of in loop.values()], "o-", label=rank)
    axes.axhline(limit_ms, color="0.7", linewidth=0.8, zorder=0)
    for index, of in enumerate(loop.values()):
        if of["underruns"] or of["failed"]:
            note = f"{of['underruns']} underruns\n{of['failed']} failed"
            axes.annotate(note, (index, of["audible_ttfa_p99_ms"]), fontsize=7, ha="center")
    axes.set(ylabel="audible TTFA (ms)", ylim=(0, None))
    axes.legend()


def _draw_work(axes: Axes, loop: Figures) -> None:
    names = [name.split("/")[0].split()[0] for name in loop]
    axes.bar(names, [of["audio_seconds_per_s"] for of in loop.values()], color="0.8")
    axes.set_ylabel("audio seconds per second")
    costs = axes.twinx()
    costs.plot(names, [of["usd_per_million_chars"] for of in loop.values()], "o-", color="tab:red")
    costs.set(ylabel="US$ per million characters", ylim=(0, None))
