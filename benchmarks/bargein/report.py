"""The report of the barge-in benchmark: a table, a plot and the figures.

This module knows no agent framework and no server.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from rich.table import Table

from voiceagent_tts.plugins.bench.bargein.report import COLUMNS, KINDS, cells, kind_of
from voiceagent_tts.plugins.bench.bargein.score import Outcome, judge, summarize

_COLORS = ("#2a9d6f", "#9fd3bd", "#e9b44c", "#d64550")
_WIDEST_DIFFERENCE = 6
_DARK_PERCENT = 60
_MOST_UNKNOWN_S = 0.5
"""Unknown audio that is not reported: transports fill their last chunk with silence."""
_COLUMNS = COLUMNS | {"discarded_s": "discarded s", "loop_lag_p99_ms": "loop lag p99, ms"}
"""Figures and their headings. "Silent" counts from the user's first sound; the loop lag shows how
busy the machine was."""


@dataclass(frozen=True, slots=True)
class Result:
    """The measurement of one condition.

    Args:
        name: name of the condition.
        outcomes: outcomes of all replies with audio.
        facts: other figures, by their names in the JSON output.
    """

    name: str
    outcomes: tuple[Outcome, ...]
    facts: dict[str, Any]

    @property
    def figures(self) -> dict[str, Any]:
        """All figures of the condition."""
        return summarize(self.outcomes) | self.facts


def table_of(host: str, results: Sequence[Result]) -> Table:
    """The figures as a table for the terminal."""
    table = Table(title=f"After a barge-in, on {host}", title_justify="left", box=None)
    table.add_column("condition", no_wrap=True)
    for heading in _COLUMNS.values():
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(result.name, *cells(result.figures, _COLUMNS))
    return table


def complaints_about(results: Sequence[Result]) -> list[str]:
    """One sentence for each fact that makes a result doubtful."""
    complaints: list[str] = []
    for result in results:
        facts, name = result.figures, result.name
        found = {
            f"{facts['silent_turns']} replies made no sound": facts["silent_turns"],
            f"{facts['not_cut']} replies were over before they were cut off": facts["not_cut"],
            f"{facts['unknown_s']} s of sound were not the engine's": facts["unknown_s"]
            > _MOST_UNKNOWN_S,
            f"expected {facts['planned']} replies, got {facts['told']}": (
                facts["planned"] != facts["told"]
            ),
        }
        complaints += [f"{name}: {sentence}" for sentence, is_so in found.items() if is_so]
        complaints += [f"{name}: a session broke off: {error}" for error in facts["broken_off"]]
    return complaints


def plot(host: str, results: Sequence[Result], path: Path) -> None:
    """Draw for each condition the share of wrong histories, and by how many words they differ."""
    measured = [result for result in results if result.outcomes]
    figure, (bars, histograms) = plt.subplots(
        1, 2, figsize=(13, 1.6 + 0.36 * len(measured)), width_ratios=(3, 2), layout="constrained"
    )
    _draw_bars(bars, measured)
    _draw_histograms(histograms, measured)
    figure.suptitle(f"{host}: the history after a barge-in, against what was heard")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_bars(axes: Any, results: Sequence[Result]) -> None:
    names = [f"{result.name} ({len(result.outcomes)})" for result in results]
    shares = np.array([_shares(result) for result in results]).reshape(-1, 4).T
    left = np.zeros(len(results))
    for label, color, widths in zip(KINDS.values(), _COLORS, shares, strict=True):
        axes.barh(names, widths, left=left, color=color, label=label)
        left += widths
    axes.set_ylim(len(results) - 0.5, -0.5)  # aligned with the histogram rows
    axes.set(xlim=(0, 100), xlabel="% of the replies that were cut off (their number)")
    axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize=8)


def _shares(result: Result) -> list[float]:
    """Percentages of replies of each kind of history."""
    kinds = Counter(kind_of(judge(o.text, o.committed, o.heard)) for o in result.outcomes)
    return [100 * kinds[kind] / len(result.outcomes) for kind in KINDS]


def _draw_histograms(axes: Any, results: Sequence[Result]) -> None:
    """Draw one histogram per row, in percent; larger differences count in the outer columns."""
    places = np.arange(-_WIDEST_DIFFERENCE, _WIDEST_DIFFERENCE + 1)
    percent = np.zeros((len(results), len(places)))
    for row, result in enumerate(results):
        differences = [
            judge(outcome.text, outcome.committed, outcome.heard).difference
            for outcome in result.outcomes
        ]
        columns = np.clip(differences, places[0], places[-1]) + _WIDEST_DIFFERENCE
        percent[row] = 100 * np.bincount(columns, minlength=len(places)) / len(differences)
    axes.imshow(percent, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    for row, column in zip(*np.nonzero(percent >= 0.5), strict=True):
        share = percent[row, column]
        color = "white" if share > _DARK_PERCENT else "#333333"
        axes.text(column, row, f"{share:.0f}", ha="center", va="center", color=color, fontsize=8)
    axes.set_xticks(range(len(places)), [f"{place:+d}" if place else "0" for place in places])
    axes.set_yticks([])
    axes.set(xlabel="words in the history minus words heard (% of the replies)")
