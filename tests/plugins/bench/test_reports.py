"""What a run says: the document and the page."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from voiceagent_tts.plugins.bench.document import (
    SCHEMA,
    last_line,
)
from voiceagent_tts.plugins.bench.figures import warnings_of
from voiceagent_tts.plugins.bench.run import Outputs, publish, table_of
from voiceagent_tts.plugins.bench.statistics import percentiles


def section(target: str, load: str, audible_ms: list[float], **counts: Any) -> dict[str, Any]:
    """A section as `section_document` makes it, with one measure."""
    figures: dict[str, Any] = {"n": len(audible_ms), "mean": float(np.mean(audible_ms))}
    for rank, interval in percentiles(audible_ms).items():
        figures |= {f"p{rank}": interval.value, f"p{rank}_interval": [interval.low, interval.high]}
    return {
        "target": target, "load": load, "seconds": 10.0, "utterances": len(audible_ms),
        "complete": len(audible_ms), "interrupted": 0, "failed": 0, "failures": {}, "silent": 0,
        "with_underruns": 0, "underruns": 0, "audio_s_per_s": 2.0, "chars_per_s": 30.0,
        "good_percent": 100.0, "client_lag_p99_ms": 1.0,
        "measures": {"audible_ms": figures}, "values": {"audible_ms": audible_ms}, **counts,
    }  # fmt: skip


def document(*sections: dict[str, Any]) -> dict[str, Any]:
    """A document of a run."""
    return {
        "schema": SCHEMA, "kind": "latency", "machine": "2 x <CPU>", "versions": {"a": "1"},
        "commit": "abc", "command": "voiceagent-tts bench latency", "load_1_min": 0.5,
        "started_at": "2026-11-23T08:00:00+00:00", "seed": 1,
        "sections": list(sections),
    }  # fmt: skip


def values(mean: float, seed: int) -> list[float]:
    """100 latencies around `mean`."""
    return np.random.default_rng(seed).normal(mean, mean / 10, 100).tolist()


def test_the_last_line_has_the_figures_without_the_values() -> None:
    """One line of JSON; percentiles by name, as other programs read them."""
    line = last_line(document(section("a", "1 at once", [1.0, 2.0, 3.0])))
    (figures,) = json.loads(line)["sections"]
    assert "\n" not in line
    assert figures["audible_p50_ms"] == 2
    assert "values" not in figures and "measures" not in figures


def test_the_page_has_the_figures_and_where_they_come_from(tmp_path: Path) -> None:
    """One file that loads nothing, with names escaped."""
    sections = [section("<a>", "1 at once", values(100, 1)), section("b", "2/s", values(9, 2))]
    outputs = Outputs(tmp_path, html=tmp_path / "made" / "a.html")
    publish(document(*sections), outputs, table_of(sections), warnings_of(sections))
    page = (tmp_path / "made" / "a.html").read_text()
    for part in ("&lt;a&gt;, 1 at once", "b, 2/s", "2 x &lt;CPU&gt;", "commit: abc"):
        assert part in page
    assert "<a>" not in page and "<script" not in page and "http" not in page


def test_doubtful_figures_are_named() -> None:
    """A late client and few utterances make percentiles doubtful."""
    late = section("a", "1 at once", [1.0] * 30, client_lag_p99_ms=25.0)
    few = section("b", "1 at once", [1.0] * 3)
    assert [warning.split(":")[0] for warning in warnings_of([late, few])] == [
        "a, 1 at once", "b, 1 at once",
    ]  # fmt: skip
