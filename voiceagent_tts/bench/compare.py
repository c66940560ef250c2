"""Compares two documents: ratios with intervals, and whether a difference is more than noise."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from voiceagent_tts.bench.measures import MEASURES
from voiceagent_tts.bench.statistics import Interval, ratio
from voiceagent_tts.errors import InvalidRequestError

_RANKS = (50, 95)
_RATES = ("audio_s_per_s", "chars_per_s", "exact_pct", "within_one_pct")


@dataclass(frozen=True, slots=True)
class Difference:
    """One measure of one section, in both runs.

    Attributes:
        section: target and load.
        figure: name of the measure and the percentile.
        before: its value in the first document.
        after: its value in the second.
        ratio: `after / before` with its interval; None where a quotient has no meaning.
        is_lower_better: the direction of improvement; None where neither is better.
    """

    section: str
    figure: str
    before: float
    after: float
    ratio: Interval | None
    is_lower_better: bool | None = True

    @property
    def verdict(self) -> str:
        """`noise`, `better`, `worse`, `higher`, `lower`, or `?` for single values."""
        if self.ratio is None:
            return "equal" if self.before == self.after else "?"
        if self.ratio.low <= 1 <= self.ratio.high:
            return "noise"
        is_higher = self.ratio.low > 1
        if self.is_lower_better is None:
            return "higher" if is_higher else "lower"
        return "worse" if is_higher == self.is_lower_better else "better"


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[Difference]:
    """The differences of all sections that both documents have.

    Raises:
        InvalidRequestError: they have no section in common.
    """
    pairs = list(_pairs(before, after))
    if not pairs:
        raise InvalidRequestError(
            f"expected documents with equal targets and loads; got {_names(before)} and "
            f"{_names(after)}; name targets alike with NAME=ADDRESS"
        )
    return [difference for pair in pairs for difference in _of_section(*pair)]


def _names(document: dict[str, Any]) -> str:
    return "; ".join(f"{each['target']}, {each['load']}" for each in document["sections"])


def _pairs(before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Sections with equal target and load; a single target needs no equal name."""
    targets = [{each["target"] for each in one["sections"]} for one in (before, after)]
    is_single = all(len(names) == 1 for names in targets)

    def key(section: dict[str, Any]) -> str:
        return section["load"] if is_single else f"{section['target']}, {section['load']}"

    others = {key(section): section for section in after["sections"]}
    for section in before["sections"]:
        if (name := key(section)) in others:
            yield name, section, others[name]


def _of_section(name: str, before: Any, after: Any) -> Iterator[Difference]:
    for measure in before["values"].keys() & after["values"].keys():
        for rank in _RANKS:
            yield Difference(
                name,
                f"{measure} p{rank}",
                before["measures"][measure][f"p{rank}"],
                after["measures"][measure][f"p{rank}"],
                ratio(before["values"][measure], after["values"][measure], rank),
                MEASURES[measure].is_lower_better if measure in MEASURES else True,
            )
    for rate in before.keys() & after.keys() & set(_RATES):
        yield Difference(name, rate, before[rate], after[rate], None, False)


def table_of(found: list[Difference]) -> Table:
    """The differences as a table."""
    table = Table(title="second run ÷ first run, with 95 % intervals", box=None)
    for heading in ("section", "figure", "first", "second", "ratio", "interval", "verdict"):
        table.add_column(heading, justify="left" if heading in ("section", "figure") else "right")
    for each in sorted(found, key=lambda each: (each.section, each.figure)):
        cells = ["", ""]
        if each.ratio is not None:
            cells = [f"{each.ratio.value:.2f}", f"{each.ratio.low:.2f} to {each.ratio.high:.2f}"]
        table.add_row(
            each.section, each.figure, f"{each.before:.4g}", f"{each.after:.4g}", *cells,
            each.verdict,
        )  # fmt: skip
    table.caption = (
        "noise: the interval contains 1. ?: one value for each run, so nothing tells noise from a "
        "difference; repeat the runs. One verdict in twenty is wrong by chance."
    )
    return table
