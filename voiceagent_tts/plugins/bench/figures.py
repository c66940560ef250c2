"""How figures of a run are named and written, and what makes them doubtful."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.table import Table

_FEW = 20
_MOST_LAG_MS = 10.0
"""Lag of the client's own event loop from which its figures are doubtful."""

COLUMNS = {
    "utterances": "utterances",
    "failed": "failed",
    "first_byte_p50_ms": "first byte p50, ms",
    "audible_p50_ms": "audible p50, ms",
    "audible_p95_ms": "audible p95, ms",
    "audible_p99_ms": "audible p99, ms",
    "with_underruns": "with underruns",
    "lateness_p99_ms": "lateness p99, ms",
    "e2e_p50_ms": "whole p50, ms",
    "rtf_p50": "RTF p50",
    "audio_s_per_s": "audio s/s",
    "chars_per_s": "chars/s",
    "word_lag_p95_ms": "word lag p95, ms",
    "last_frame_p95_ms": "interruption to last audio p95, ms",
    "bytes_after_cancel_p50": "bytes after it, p50",
    "wasted_p50_s": "wasted p50, s",
    "good_percent": "served well, %",
    "server_cpu_percent": "server CPU of a stream, % of a core",
    "server_mb_per_stream": "server memory of a stream, MiB",
}
"""Columns of the tables: name in `flat`, heading."""


def columns_of(figures: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The columns for which some of the sections, as `flat` returns them, has a figure."""
    return {
        name: heading
        for name, heading in COLUMNS.items()
        if any(each.get(name) is not None for each in figures)
    }


def table(
    title: str, headings: Iterable[str], rows: Iterable[Iterable[str]], *, names: int = 1
) -> Table:
    """A table of figures, which stand on the right; the first columns are `names`."""
    made = Table(title=title, title_justify="left", box=None)
    for place, heading in enumerate(headings):
        is_name = place < names
        made.add_column(
            heading,
            justify="left" if is_name else "right",
            no_wrap=is_name,
            overflow="ellipsis" if is_name else "fold",
        )
    for row in rows:
        made.add_row(*row)
    return made


def format_figure(value: Any) -> str:
    """A figure with about three digits; a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def warnings_of(sections: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What makes figures doubtful."""
    for section in sections:
        name = f"{section['target']}, {section['load']}"
        if (section["client_lag_p99_ms"] or 0) > _MOST_LAG_MS:
            yield (
                f"{name}: the client itself was up to {section['client_lag_p99_ms']:.0f} ms late "
                "(p99), and its figures include that. Use a machine with more free cores."
            )
        if section["utterances"] < _FEW:
            yield f"{name}: p95 and p99 of {section['utterances']} utterances are their largest."
        for failure, count in section["failures"].items():
            yield f"{name}: {count} of {section['utterances']} failed with {failure}."


def mute_targets(sections: Sequence[dict[str, Any]]) -> list[str]:
    """The names of the targets that have spoken nothing, in order."""
    names = dict.fromkeys(section["target"] for section in sections)
    spoke = {each["target"] for each in sections if each["utterances"] > each["failed"]}
    return [name for name in names if name not in spoke]
