"""The plots of `benchmarks.alignment`: exactness by method, and by condition."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure


def plot_methods(exact_pct: dict[str, dict[float, float]], path: Path) -> None:
    """Draw one line per method.

    Args:
        exact_pct: percentage of exact barge-ins, by method and real-time factor.
        path: where the PNG is written.
    """
    figure, axes = plt.subplots(figsize=(8, 5))
    for name, by_rtf in exact_pct.items():
        axes.plot(list(by_rtf), list(by_rtf.values()), marker="o", label=name)
    axes.set_xlabel("real-time factor of the generation")
    axes.set_ylabel("barge-ins with exactly the words heard, %")
    axes.set_ylim(0, 100)
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    _save(figure, path)


def plot_conditions(figures: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Draw two bars per condition: exact barge-ins, and wrong times that were sent as exact.

    Args:
        figures: `exact_pct` and `stamped_off_pct` by condition.
        path: where the PNG is written.
    """
    names = list(figures)
    figure, (exact, off) = plt.subplots(1, 2, sharey=True, figsize=(10, 1 + 0.25 * len(names)))
    exact.barh(names, [figures[name]["exact_pct"] for name in names])
    exact.set_xlabel("barge-ins with exactly the words heard, %")
    exact.set_xlim(0, 100)
    off.barh(names, [figures[name]["stamped_off_pct"] for name in names], color="tab:red")
    off.axvline(1, color="black", linewidth=0.8, label="wanted: at most 1 %")
    off.legend(loc="upper right")
    off.set_xlabel("words sent as exact, but more than 200 ms off, %")
    exact.set_ylim(len(names) - 0.4, -0.6)
    for axes in (exact, off):
        axes.grid(alpha=0.3, axis="x")
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
