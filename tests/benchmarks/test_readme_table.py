"""The README's latencies are those that one command has measured."""

import json
from pathlib import Path

import pytest

from benchmarks.service.readme_table import END, FIGURES, README, START, peers, put, table_of
from voiceagent_tts.plugins.bench.callers import Section
from voiceagent_tts.plugins.bench.document import flat
from voiceagent_tts.plugins.bench.loads import Load, Style
from voiceagent_tts.plugins.bench.run import Outputs, run_latency
from voiceagent_tts.plugins.bench.texts import choose_texts


def test_the_readme_has_the_table_of_the_stored_figures() -> None:
    """Neither was edited by hand: both are what `make bench-readme` has written."""
    page = README.read_text("utf-8")
    assert put(page, table_of(json.loads(FIGURES.read_text("utf-8")))) == page


@pytest.mark.parametrize("page", ["", START, END + START, START + END + END, START * 2 + END])
def test_a_page_without_both_marks_is_left_alone(page: str) -> None:
    """Nothing is guessed about where the table belongs."""
    with pytest.raises(ValueError, match="marks"):
        put(page, "table\n")
    assert put(f"a\n{START}old\n{END}b\n", "new\n") == f"a\n{START}new\n{END}b\n"


@pytest.mark.thorough
def test_the_peers_speak(tmp_path: Path) -> None:
    """Whole utterances have no first audio before their end, and ours do."""
    style = Style(choose_texts(["en"], ["short"]))
    plan = [Section(Load(together=1), seconds=0.3)]
    document = run_latency(peers(tmp_path), plan, style, Outputs(tmp_path))
    sections = [flat(section) for section in document["sections"]]
    assert [each["failed"] for each in sections] == [0] * 5
    (whole,) = [each for each in sections if each["target"].startswith("whole utterances")]
    assert whole["first_byte_p50_ms"] > 0.5 * whole["e2e_p50_ms"]
