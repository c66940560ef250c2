"""What a run says: the document, the comparison and the page."""

import json
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.bench.compare import differences
from voiceagent_tts.plugins.bench.compare import table_of as comparison_table
from voiceagent_tts.plugins.bench.document import (
    SCHEMA,
    last_line,
    measures_of,
    read_document,
    write_document,
)
from voiceagent_tts.plugins.bench.figures import warnings_of
from voiceagent_tts.plugins.bench.quality.measures import Values
from voiceagent_tts.plugins.bench.quality.report import section_of as quality_section
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


def verdicts(before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    """The verdict of every figure."""
    return {each.figure: each.verdict for each in differences(before, after)}


@pytest.mark.parametrize("count", [1, 3, 19, 20])
def test_too_few_values_are_no_difference(count: int) -> None:
    """Of equal servers at most one in ten differs, and none from fewer values than it takes."""
    rng = np.random.default_rng(count)
    found: Counter[str] = Counter()
    for _ in range(60):
        one, two = (document(section("a", "1/s", rng.lognormal(5, 0.5, count).tolist()))
                    for _ in range(2))  # fmt: skip
        found[verdicts(one, two)["audible_ms p95"]] += 1
    assert found["?"] == (60 if count < 20 else 0)
    assert found["better"] + found["worse"] <= 6


def test_values_below_zero_are_compared_by_their_difference() -> None:
    """A word's lag is negative when the word is in time: a ratio would say nothing."""
    early, late = (section("a", "1/s", values(100, 1)) for _ in range(2))
    early |= measures_of({"word_lag_ms": [-value for value in values(100, 1)]})
    late |= measures_of({"word_lag_ms": [20 - value for value in values(100, 2)]})
    found = {each.figure: each for each in differences(document(early), document(late))}
    median = found["word_lag_ms p50"]
    assert median.verdict == "worse" and not median.is_ratio
    assert median.change is not None and median.change.value == pytest.approx(20, abs=4)
    assert verdicts(document(early), document(early))["word_lag_ms p50"] == "noise"


def test_shares_are_compared_with_their_intervals() -> None:
    """2 of 100 failed utterances against 4 are noise; 40 against 2 are not."""
    good, same, bad = (
        document(section("a", "1/s", values(100, 1), failed=failed, good_percent=100.0 - failed))
        for failed in (2, 4, 40)
    )
    assert verdicts(good, same)["failed_percent"] == verdicts(good, same)["good_percent"] == "noise"
    assert verdicts(good, bad)["failed_percent"] == verdicts(good, bad)["good_percent"] == "worse"
    assert verdicts(bad, good)["failed_percent"] == "better"


def quality(*clips: tuple[str, dict[str, list[float]]]) -> dict[str, Any]:
    """A document of `bench quality` with these parts and their values."""
    sections = [
        {"target": "a", **quality_section(part, "en", len(of), Values(of))} for part, of in clips
    ]
    return document() | {"kind": "quality", "sections": sections}


def test_documents_of_quality_are_compared() -> None:
    """Means by their difference, shares in percentage points, each in its own direction."""
    rng = np.random.default_rng(8)

    def run(wer: float, similarity: float, artifacts: int) -> dict[str, Any]:
        found = [100.0] * artifacts + [0.0] * (200 - artifacts)
        words = rng.normal(wer, 2, 50).tolist()
        return quality(
            ("words", {"wer_percent": words}),
            ("voice", {"similarity": rng.normal(similarity, 0.03, 50).tolist()}),
            ("artifacts", {"artifact_percent": found}),
        )

    first, again, other = run(8, 0.8, 2), run(8, 0.8, 4), run(12, 0.7, 40)
    assert set(verdicts(first, again).values()) == {"noise"}
    assert set(verdicts(first, other).values()) == {"worse"}
    assert set(verdicts(other, first).values()) == {"better"}
    found = {each.figure: each for each in differences(first, other)}
    artifacts = found["artifact_percent"]
    assert (artifacts.before, artifacts.after) == (1, 20)
    assert artifacts.change is not None and artifacts.change.value == pytest.approx(19)
    few = quality(("voice", {"similarity": [0.8]}))
    assert verdicts(few, quality(("voice", {"similarity": [0.6]}))) == {"similarity": "?"}
    with pytest.raises(InvalidRequestError, match="equal targets and parts"):
        differences(few, quality(("words", {"wer_percent": [1.0]})))


def test_documents_of_two_kinds_are_refused() -> None:
    """The error names both commands."""
    with pytest.raises(InvalidRequestError, match=r"`bench latency`.*`bench quality`"):
        differences(document(section("a", "1/s", [1.0])), quality(("voice", {"similarity": [0.8]})))


def test_a_comparison_is_a_table_with_every_figure() -> None:
    """Ratios are marked, differences have their sign, and the verdict is in the last column."""
    before, after = (document(section("a", "1/s", values(mean, 1))) for mean in (100, 200))
    out = StringIO()
    Console(file=out, width=200).print(comparison_table(differences(before, after)))
    row = next(line for line in out.getvalue().splitlines() if "audible_ms p50" in line)
    assert "x 2.00" in row and row.rstrip().endswith("worse")
    failed = next(line for line in out.getvalue().splitlines() if "failed_percent" in line)
    assert "+0" in failed and failed.rstrip().endswith("noise")


def test_only_equal_loads_are_compared() -> None:
    """One target may have another name; without a common load, the error names both."""
    one = document(section("a", "1 at once", values(100, 1)))
    renamed = document(section("b", "1 at once", values(100, 1)))
    assert differences(one, renamed)
    with pytest.raises(InvalidRequestError, match="2 at once"):
        differences(one, document(section("a", "2 at once", values(100, 1))))


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
