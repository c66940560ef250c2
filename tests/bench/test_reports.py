"""What a run says: the document, the comparison and the page."""

import copy
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from voiceagent_tts.bench.charts import nice_ticks
from voiceagent_tts.bench.compare import differences
from voiceagent_tts.bench.document import SCHEMA, last_line, read_document, write_document
from voiceagent_tts.bench.html import render, warnings_of
from voiceagent_tts.bench.measures import MEASURES
from voiceagent_tts.bench.statistics import percentiles
from voiceagent_tts.errors import InvalidRequestError


def section(target: str, load: str, audible_ms: list[float], **counts: Any) -> dict[str, Any]:
    """A section as `section_document` makes it, with one measure."""
    figures: dict[str, Any] = {"n": len(audible_ms), "mean": float(np.mean(audible_ms))}
    for rank, interval in percentiles(audible_ms).items():
        figures |= {f"p{rank}": interval.value, f"p{rank}_interval": [interval.low, interval.high]}
    return {
        "target": target, "load": load, "seconds": 10.0, "utterances": len(audible_ms),
        "complete": len(audible_ms), "interrupted": 0, "failed": 0, "failures": {}, "silent": 0,
        "with_underruns": 0, "underruns": 0, "audio_s_per_s": 2.0, "chars_per_s": 30.0,
        "usd_per_million_chars": 1.0, "good_percent": 100.0, "client_lag_p99_ms": 1.0,
        "measures": {"audible_ms": figures}, "values": {"audible_ms": audible_ms}, **counts,
    }  # fmt: skip


def document(*sections: dict[str, Any]) -> dict[str, Any]:
    """A document of a run."""
    return {
        "schema": SCHEMA, "kind": "latency", "machine": "2 x <CPU>", "versions": {"a": "1"},
        "commit": "abc", "command": "voiceagent-tts bench latency", "load_1_min": 0.5,
        "started_at": "2026-11-23T08:00:00+00:00", "seed": 1, "usd_per_hour": 3.0,
        "sections": list(sections),
    }  # fmt: skip


def values(mean: float, seed: int) -> list[float]:
    """100 latencies around `mean`."""
    return np.random.default_rng(seed).normal(mean, mean / 10, 100).tolist()


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Every value is kept; a file of something else is refused."""
    written = document(section("a", "1 at once", values(100, 1)))
    write_document(written, tmp_path / "made" / "a.json")
    assert read_document(tmp_path / "made" / "a.json") == written
    for content in ("[]", "{}", "no"):
        (tmp_path / "b.json").write_text(content)
        with pytest.raises(InvalidRequestError, match="expected"):
            read_document(tmp_path / "b.json")


def test_the_last_line_has_the_figures_without_the_values() -> None:
    """One line of JSON; percentiles by name, as other programs read them."""
    line = last_line(document(section("a", "1 at once", [1.0, 2.0, 3.0])))
    (figures,) = json.loads(line)["sections"]
    assert "\n" not in line
    assert figures["audible_p50_ms"] == 2
    assert "values" not in figures and "measures" not in figures


def test_a_comparison_tells_noise_from_a_difference() -> None:
    """Two samples of one server are noise, half its speed is worse; single figures cannot tell."""
    before = document(section("a", "1 at once", values(100, 1)))
    same, slow = (
        document(section("a", "1 at once", values(mean, 2), chars_per_s=40.0))
        for mean in (100, 200)
    )
    verdicts = {each.figure: each.verdict for each in differences(before, same)}
    assert verdicts["audible_ms p50"] == verdicts["audible_ms p95"] == "noise"
    assert verdicts["chars_per_s"] == "?" and verdicts["audio_s_per_s"] == "equal"
    assert {each.figure: each.verdict for each in differences(before, slow)}[
        "audible_ms p95"
    ] == "worse"
    assert {each.figure: each.verdict for each in differences(slow, before)}[
        "audible_ms p95"
    ] == "better"


def test_only_equal_loads_are_compared() -> None:
    """One target may have another name; without a common load, the error names both."""
    one = document(section("a", "1 at once", values(100, 1)))
    renamed = document(section("b", "1 at once", values(100, 1)))
    assert differences(one, renamed)
    with pytest.raises(InvalidRequestError, match="2 at once"):
        differences(one, document(section("a", "2 at once", values(100, 1))))


class Page(HTMLParser):
    """Collects what a page loads, its scripts, and whether its elements close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "line", "polyline", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("line", "polyline"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_loads_nothing() -> None:
    """No script, no link, every element closed, names escaped, every section in it."""
    sections = [section("<a>", "1 at once", values(100, 1)), section("b", "2/s", values(9, 2))]
    text = render(document(*sections))
    page = Page()
    page.feed(text)
    assert page.open == [] and page.loads == []
    assert "<script" not in text and "url(" not in text
    assert "2 x <CPU>" in page.text and "<a>, 1 at once" in page.text and "b, 2/s" in page.text
    assert MEASURES["audible_ms"].title in page.text


def test_a_run_without_a_sound_has_a_page_too() -> None:
    """A target that failed shows why, in place of a chart."""
    failed = copy.deepcopy(section("a", "1 at once", [1.0]))
    failed |= {"failed": 3, "failures": {"timeout": 3}, "measures": {}, "values": {}}
    text = render(document(failed))
    assert "failed with timeout" in text and "no sound" in text


def test_doubtful_figures_are_named() -> None:
    """A late client and few utterances make percentiles doubtful."""
    late = section("a", "1 at once", [1.0] * 30, client_lag_p99_ms=25.0)
    few = section("b", "1 at once", [1.0] * 3)
    assert [warning.split(":")[0] for warning in warnings_of([late, few])] == [
        "a, 1 at once", "b, 1 at once",
    ]  # fmt: skip


@pytest.mark.parametrize("highest", [0.0, 0.003, 1.0, 99.0, 100.0, 1234.5])
def test_ticks_are_round_and_reach_the_highest_value(highest: float) -> None:
    """Few ticks from zero, the last one not below the data."""
    ticks = nice_ticks(highest)
    assert ticks[0] == 0 and ticks[-1] >= highest and 2 <= len(ticks) <= 7
