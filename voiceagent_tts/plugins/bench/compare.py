"""Compares two documents of one kind: what has changed, and whether it is more than noise."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.measures import MEASURES
from voiceagent_tts.plugins.bench.quality.measures import MEASURES as QUALITY_MEASURES
from voiceagent_tts.plugins.bench.quality.measures import is_share
from voiceagent_tts.plugins.bench.statistics import (
    Interval,
    difference,
    mean_difference,
    ratio,
    share_difference,
)

_RANKS = {50: 5, 95: 20}
"""Rank -> values that each run needs, or the interval is too narrow: equal runs would differ."""
_LEAST_FOR_A_MEAN = 20
_PERCENT = 100


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of one section, in both runs.

    Attributes:
        section: target and load, or target and part.
        figure: name of the measure, with the percentile if it is one.
        before: its value in the first document.
        after: its value in the second.
        change: `after / before` or `after - before` with its interval; None for values that are
            too few to have one.
        is_ratio: which of both `change` is.
        is_lower_better: the direction of improvement; None where neither is better.
    """

    section: str
    figure: str
    before: float
    after: float
    change: Interval | None
    is_ratio: bool = False
    is_lower_better: bool | None = True

    @property
    def verdict(self) -> str:
        """`noise`, `better`, `worse`, `higher`, `lower`; `equal` or `?` without an interval."""
        if self.change is None:
            return "equal" if self.before == self.after else "?"
        unchanged = 1 if self.is_ratio else 0
        if self.change.low <= unchanged <= self.change.high:
            return "noise"
        is_higher = self.change.low > unchanged
        if self.is_lower_better is None:
            return "higher" if is_higher else "lower"
        return "worse" if is_higher == self.is_lower_better else "better"


@dataclass(frozen=True, slots=True)
class _Share:
    """A share of a section's utterances or cuts.

    Attributes:
        figure: its name, in per cent.
        of: field of a section with the count.
        hits: field with the hits; None where `figure` is a field itself.
        is_lower_better: the direction of improvement.
    """

    figure: str
    of: str
    hits: str | None = None
    is_lower_better: bool = True

    def counted(self, section: dict[str, Any]) -> tuple[int, int]:
        """(hits, count) in a section; (0, 0) where nothing was counted."""
        if not (count := section[self.of]):
            return 0, 0
        if self.hits is not None:
            return section[self.hits], count
        return round(section[self.figure] * count / _PERCENT), count


_SHARES = {
    "latency": (
        _Share("failed_percent", "utterances", "failed"),
        _Share("with_underruns_percent", "utterances", "with_underruns"),
        _Share("good_percent", "utterances", is_lower_better=False),
    ),
    "bargein": (
        _Share("exact_pct", "cuts", is_lower_better=False),
        _Share("within_one_pct", "cuts", is_lower_better=False),
        _Share("dropped_percent", "cuts", "dropped_turns"),
    ),
}
"""Kind of document -> the shares of its sections."""
_SINGLE = (
    "audio_s_per_s", "chars_per_s", "server_cpu_percent", "front_cpu_percent",
    "client_cpu_percent", "server_mb", "server_mb_per_stream", "front_mb_per_stream",
)  # fmt: skip
"""Figures of which a section has one value."""


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[Difference]:
    """The differences of all sections that both documents have.

    Raises:
        InvalidRequestError: they are of different kinds, or have no section in common.
    """
    kind = before.get("kind")
    if kind != after.get("kind"):
        raise InvalidRequestError(
            f"expected two documents of one kind; got one of `bench {kind}` and one of "
            f"`bench {after.get('kind')}`"
        )
    name_of = _part_of if kind == "quality" else _load_of
    pairs = list(_pairs(before, after, name_of))
    if not pairs:
        raise InvalidRequestError(
            "expected documents with equal targets and "
            f"{'parts' if kind == 'quality' else 'loads'}; got {_names(before, name_of)} and "
            f"{_names(after, name_of)}; name targets alike with NAME=ADDRESS"
        )
    if kind == "quality":
        return [each for pair in pairs for each in _of_means(*pair)]
    return [
        each
        for pair in pairs
        for of in (_of_percentiles(*pair), _of_shares(*pair, _SHARES.get(str(kind), ())))
        for each in of
    ]


def _load_of(section: dict[str, Any]) -> str:
    return section["load"]


def _part_of(section: dict[str, Any]) -> str:
    return f"{section['part']} {section['group']}".strip()


def _names(document: dict[str, Any], name_of: Callable[[dict[str, Any]], str]) -> str:
    return "; ".join(f"{each['target']}, {name_of(each)}" for each in document["sections"])


def _pairs(
    before: dict[str, Any], after: dict[str, Any], name_of: Callable[[dict[str, Any]], str]
) -> Iterator[tuple[str, Any, Any]]:
    """Sections with equal target and name; a single target needs no equal name."""
    targets = [{each["target"] for each in one["sections"]} for one in (before, after)]
    is_single = all(len(names) == 1 for names in targets)

    def key(section: dict[str, Any]) -> str:
        return name_of(section) if is_single else f"{section['target']}, {name_of(section)}"

    others = {key(section): section for section in after["sections"]}
    for section in before["sections"]:
        if (name := key(section)) in others:
            yield name, section, others[name]


def _of_percentiles(name: str, before: Any, after: Any) -> Iterator[Difference]:
    """p50 and p95 of every measure: ratios, or differences where values are not all positive."""
    for measure in before["values"].keys() & after["values"].keys():
        values = before["values"][measure], after["values"][measure]
        for rank, least in _RANKS.items():
            change = ratio(*values, rank)
            yield Difference(
                name,
                f"{measure} p{rank}",
                before["measures"][measure][f"p{rank}"],
                after["measures"][measure][f"p{rank}"],
                None if min(map(len, values)) < least else change or difference(*values, rank),
                change is not None,
                MEASURES[measure].is_lower_better if measure in MEASURES else True,
            )
    for figure in before.keys() & after.keys() & set(_SINGLE):
        if before[figure] is not None and after[figure] is not None:
            yield Difference(name, figure, before[figure], after[figure], None)


def _of_shares(
    name: str, before: Any, after: Any, shares: tuple[_Share, ...]
) -> Iterator[Difference]:
    for share in shares:
        counted = share.counted(before), share.counted(after)
        if all(count for _, count in counted):
            is_lower_better = share.is_lower_better
            yield _of_share(name, share.figure, *counted, is_lower_better=is_lower_better)


def _of_share(
    name: str,
    figure: str,
    before: tuple[int, int],
    after: tuple[int, int],
    *,
    is_lower_better: bool | None,
) -> Difference:
    """A difference of two shares, each (hits, count), in per cent and percentage points."""
    found = share_difference(before, after)
    return Difference(
        name,
        figure,
        _PERCENT * before[0] / before[1],
        _PERCENT * after[0] / after[1],
        Interval(_PERCENT * found.value, _PERCENT * found.low, _PERCENT * found.high),
        is_lower_better=is_lower_better,
    )


def _of_means(name: str, before: Any, after: Any) -> Iterator[Difference]:
    """Means of every measure of quality, and shares where values are 0 or 100."""
    for measure in before["values"].keys() & after["values"].keys():
        values = before["values"][measure], after["values"][measure]
        is_lower_better = QUALITY_MEASURES[measure].is_lower_better
        if is_share(measure):
            counted = [(sum(value > 0 for value in of), len(of)) for of in values]
            yield _of_share(name, measure, *counted, is_lower_better=is_lower_better)
            continue
        yield Difference(
            name,
            measure,
            before["measures"][measure]["mean"],
            after["measures"][measure]["mean"],
            None if min(map(len, values)) < _LEAST_FOR_A_MEAN else mean_difference(*values),
            is_lower_better=is_lower_better,
        )


def table_of(found: list[Difference]) -> Table:
    """The differences as a table."""
    table = Table(title="second run against first, with 95 % intervals", box=None)
    for heading in ("section", "figure", "first", "second", "change", "interval", "verdict"):
        table.add_column(heading, justify="left" if heading in ("section", "figure") else "right")
    for each in sorted(found, key=lambda each: (each.section, each.figure)):
        cells = ["", ""]
        if each.change is not None:
            form = "{:.2f}" if each.is_ratio else "{:+.3g}"
            low, high = form.format(each.change.low), form.format(each.change.high)
            cells = [
                f"{'x ' if each.is_ratio else ''}{form.format(each.change.value)}",
                f"{low} to {high}",
            ]
        table.add_row(
            each.section, each.figure, f"{each.before:.4g}", f"{each.after:.4g}", *cells,
            each.verdict,
        )  # fmt: skip
    table.caption = (
        "x: ratio; otherwise the difference, of shares in percentage points. noise: the interval "
        "contains no change. ?: too few values to tell noise from a difference; repeat the runs. "
        "One verdict in twenty is wrong by chance."
    )
    return table
