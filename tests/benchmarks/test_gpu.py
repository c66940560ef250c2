"""The command for a GPU machine, on a CPU with tiny models: sections, skips and verdicts."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import run as gpu
from benchmarks.gpu.complete import check
from benchmarks.gpu.ground import Ground
from benchmarks.gpu.plan import PLANS, Plan, obstacle
from benchmarks.gpu.record import LOG, MOST_FILES, RESULTS, Notes, Record
from benchmarks.gpu.report import TARGETS, verdicts
from benchmarks.gpu.sections import SECTIONS
from testbed.failing_captures import FAULT

ROOT = Path(__file__).parents[2]
KILLS = 10


def ground_of(folder: Path, section: str) -> Ground:
    """Prepare one section on a CPU with tiny models."""
    return Ground("cpu", True, folder, Notes(Record(folder / RESULTS), section))


def argv_of(out: Path, *sections: str, minutes: float = 9.5) -> list[str]:
    """Return the command's arguments on a machine without a GPU."""
    return [
        "--device", "cpu", "--size", "tiny", "--out", str(out), "--folder", f"{out}-work",
        "--minutes", str(minutes), "--sections", *sections,
    ]  # fmt: skip


def run(out: Path, *sections: str, minutes: float = 9.5) -> int:
    """Run the command in this process; its sections run in separate processes."""
    return gpu.main(argv_of(out, *sections, minutes=minutes))


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return every figure by its path of names."""
    if not isinstance(value, dict):
        return {path: value}
    found: dict[tuple[str, ...], Any] = {}
    for name, inner in value.items():
        found |= leaves(inner, (*path, name))
    return found


def test_a_section_is_run_once_and_then_remembered(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The second run takes the figures from the file and gives an equal report."""
    assert run(tmp_path, "machine") == 0
    first = capfd.readouterr().out
    written = (tmp_path / RESULTS).read_bytes()
    assert json.loads(written)["sections"]["machine"]["figures"]["copy_tb_per_s"] >= 0
    assert run(tmp_path, "machine") == 0
    second = capfd.readouterr().out
    assert "done before" in second
    assert (tmp_path / RESULTS).read_bytes() == written
    last = json.loads(second.splitlines()[-1])
    assert last == json.loads(first.splitlines()[-1])
    assert last["sections"] == ["machine"]


def test_sections_stop_where_time_ends(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Sections that did not start are not in the file, so the next run continues with them."""
    assert run(tmp_path, "machine", minutes=0) == 0
    assert "no time left" in capfd.readouterr().out
    assert Record(tmp_path / RESULTS).state("machine") == ""


def test_what_outlasts_its_limit_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A section that exceeds its limit is reported as failed and repeated by the next run."""
    monkeypatch.setitem(gpu.PLANS, "machine", Plan(0.3))
    monkeypatch.setattr(gpu, "_WORTH_A_START_S", 0)
    assert run(tmp_path, "machine") == 1
    assert "took longer than 0 s" in capfd.readouterr().out
    assert Record(tmp_path / RESULTS).state("machine").startswith("failed")
    assert Record(tmp_path / RESULTS).figures() == {}


def test_every_section_has_a_limit() -> None:
    """Plan and implementation name equal sections in equal order, and targets refer to them."""
    assert list(PLANS) == list(SECTIONS)
    assert {target.section for target in TARGETS} <= set(SECTIONS)


@pytest.mark.parametrize(
    "section",
    ["machine", "quick-1.7b", pytest.param("load-1.7b", marks=pytest.mark.thorough), "cap-0.6b"],
)
def test_sections_run_on_a_cpu(tmp_path: Path, section: str) -> None:
    """Each section keeps figures that JSON can represent, including those of its targets."""
    ground = ground_of(tmp_path, section)
    SECTIONS[section](ground)
    figures = ground.notes.figures()
    wanted = {target.figure[0] for target in TARGETS if target.section == section}
    assert wanted <= set(figures)
    if section == "quick-1.7b":
        assert [line["rows"] for line in figures["lines"].values()] == [1, 3]
        assert figures["first_audio"]["prepared_first_frame_p95_ms"] > 0
        assert (figures["kernels"], figures["has_graphs"]) == ("plain", False)
    if section == "load-1.7b":
        assert figures["sections"].keys() == {"2/s", "3 at once"}
        assert figures["utterances"] > 0
        assert figures["failed"] == 0


def test_targets_are_judged() -> None:
    """A target holds on the correct side of its limit; without a figure it has no verdict."""
    found = {
        "quick-1.7b": {"lines": {"1": {"ms_per_frame": 4.0}, "256": {"ms_per_frame": 22.5}}},
        "load-1.7b": {"sections": {"20/s": {"underruns": 1}}},
    }
    judged = verdicts(found)
    one = judged["1.7B, ms a frame, 1 row"]
    assert one == {"target": "<= 5", "measured": 4.0, "holds": True}
    assert judged["1.7B, ms a frame, 256 rows"]["holds"] is False
    assert judged["1.7B at 20/s, underruns"]["holds"] is False
    assert judged["1.7B at 1/s, underruns"]["holds"] is None
    unmeasured = judged["tests that need a GPU, failed"]
    assert unmeasured == {"target": "<= 0", "measured": None, "holds": None}


def test_a_section_without_its_packages_is_skipped_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The message names the missing package and the command that installs it; no process starts."""
    assert obstacle("machine", "cpu", tmp_path) == ""
    assert "needs an NVIDIA GPU" in obstacle("plain-codec", "cpu", tmp_path)
    assert obstacle("plain-codec", "cuda:0", tmp_path) == ""
    monkeypatch.setitem(gpu.PLANS, "flash", Plan(90, ("no_such_package",)))
    monkeypatch.setattr(gpu.GpuRun, "_run", lambda *arguments: pytest.fail("a process started"))
    assert run(tmp_path, "flash") == 0
    said = capfd.readouterr().out
    assert "no_such_package not installed here" in said
    assert "make gpu-wheels" in said
    assert Record(tmp_path / RESULTS).state("flash").startswith("skipped: no_such_package")


def test_a_failure_is_in_the_log_with_its_whole_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The log has the whole traceback, the screen its last line, and the results no trace of it."""
    out = tmp_path / "out"
    work = tmp_path / "out-work" / "cpu-tiny"
    work.mkdir(parents=True)
    (work / "tiny-tokenizer").write_text("not a folder")
    assert run(out, "cap-0.6b") == 1
    log = (out / LOG).read_text()
    assert "Traceback (most recent call last)" in log
    assert "benchmarks/random_models/in_memory.py" in log
    assert "CheckpointError" in capfd.readouterr().out
    assert {file.name for file in out.iterdir()} == {RESULTS, LOG}


def test_results_of_another_card_are_refused(tmp_path: Path) -> None:
    """Results of two cards are never mixed."""
    Record(tmp_path / RESULTS).describe(card="nvidia-h200")
    with pytest.raises(SystemExit, match="figures of nvidia-h200, and this is cpu-tiny"):
        run(tmp_path, "machine")


def test_figures_are_never_changed(tmp_path: Path) -> None:
    """A finished figure is never overwritten by a later measurement."""
    notes = Notes(Record(tmp_path / RESULTS), "machine")
    notes.keep(1, "lines", "64")
    notes.keep_all({"64": 2, "256": 3}, "lines")
    assert notes.figures() == {"lines": {"64": 1, "256": 3}}
    assert notes.has("lines", "256")
    assert not notes.has("lines", "1")
    assert not notes.has("lines", "64", "ms")


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_run_that_is_killed_loses_no_finished_figure(tmp_path: Path) -> None:
    """After kills at random moments the command finishes, and no figure has changed."""
    out, choose = tmp_path / "out", random.Random(0)
    record = Record(out / RESULTS)
    sections = ("machine", "quick-1.7b", "cap-0.6b", "plain")
    argv = argv_of(out, *sections)
    known: dict[tuple[str, ...], Any] = {}
    kills = 0
    for _ in range(KILLS):
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu", *argv],
            cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True,
        ) as process:  # fmt: skip
            wait_for_more(record, len(known), process)
            time.sleep(choose.uniform(0, 0.2))
            if process.poll() is not None:  # it had only a few figures left
                assert process.returncode == 0
                break
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        found = leaves(record.figures())
        assert known.items() <= found.items()
        known = found
    assert known and kills > 2
    subprocess.run([sys.executable, "-m", "benchmarks.gpu", *argv], cwd=ROOT, check=True)
    found = leaves(record.figures())
    assert known.items() <= found.items()
    assert [record.state(name) for name in sections] == ["done"] * len(sections)
    assert len(list(out.iterdir())) <= MOST_FILES
    assert not list(out.glob("*.partial"))


def wait_for_more(record: Record, figures: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a run has finished another figure or has ended."""
    deadline_s = time.monotonic() + 120
    while len(leaves(record.figures())) <= figures and process.poll() is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "sections", [("quick-1.7b",), pytest.param(("cap-0.6b", "plain"), marks=pytest.mark.thorough)]
)
def test_without_graphs_there_are_still_figures(
    sections: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """If every capture fails, sections run without graphs, and every result says so."""
    argv = argv_of(tmp_path, *sections)
    assert gpu.main(["--failing-captures", *argv]) == 0
    found = Record(tmp_path / RESULTS).figures()
    for section in sections:
        assert FAULT in found[section]["capture_fault"]
        lines = found[section].get("lines", {})
        assert not any(one["has_graphs"] for one in lines.values())
    said = capfd.readouterr().out
    assert said.count("!!! NO CUDA GRAPHS RAN: RuntimeError") == 2 * len(sections)
    assert list(json.loads(said.splitlines()[-1])["fallbacks"]) == list(sections)
    assert "testbed/failing_captures.py" in (tmp_path / LOG).read_text()


def test_a_run_is_complete_when_each_section_is_done_or_skipped(tmp_path: Path) -> None:
    """A section that failed, and a run without any, are named."""
    record = Record(tmp_path / RESULTS)
    with pytest.raises(ValueError, match="no section"):
        check(tmp_path)
    record.set_state("engine", "done", took_s=1)
    record.set_state("serving", "skipped: no flash-attn", took_s=0)
    assert check(tmp_path) == "1 files; 1 sections done"
    record.set_state("parity", "failed", took_s=1)
    with pytest.raises(ValueError, match=r"\{'parity': 'failed'\}"):
        check(tmp_path)
