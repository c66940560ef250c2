"""The figures of `benchmarks.engine.bench` as tables."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

STAGES = ("predictor", "talker", "codec", "host")
_COLUMNS = {
    "rows": "rows",
    "frame": "ms_per_frame",
    "predictor": "predictor_ms",
    "talker": "talker_ms",
    "codec": "codec_ms",
    "host": "host_ms",
    "prompt": "prefill_ms",
    "audio s/s": "audio_s_per_s",
    "roofline": "roofline_ms",
    "times": "times_roofline",
}


def table_of(title: str, lines: Sequence[dict[str, Any]]) -> Table:
    """Return the figures as a table, in milliseconds."""
    table = Table(title=title, box=None)
    for heading in _COLUMNS:
        table.add_column(heading, justify="right")
    for line in lines:
        table.add_row(*(f"{line[name]:g}" for name in _COLUMNS.values()))
    return table
