"""The plot of `benchmarks.alignment`: who knows the words heard, by how fast speech is made."""

from pathlib import Path

import matplotlib.pyplot as plt


def plot(exact_pct: dict[str, dict[float, float]], path: Path) -> None:
    """Draw a line for every way to know the words.

    Args:
        exact_pct: of the barge-ins, by way and by real-time factor.
        path: of the PNG.
    """
    figure, axes = plt.subplots(figsize=(8, 5))
    for name, by_rtf in exact_pct.items():
        axes.plot(list(by_rtf), list(by_rtf.values()), marker="o", label=name)
    axes.set_xlabel("real-time factor at which speech is made")
    axes.set_ylabel("barge-ins with the exact words heard, %")
    axes.set_ylim(0, 100)
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
