"""The plot of `benchmarks.alignment`: exactness of each method by real-time factor."""

from pathlib import Path

import matplotlib.pyplot as plt


def plot(exact_pct: dict[str, dict[float, float]], path: Path) -> None:
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
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
