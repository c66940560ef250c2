"""The command for a GPU machine, on a CPU with tiny models: sections, skips and verdicts."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.ground import Ground, measure
from benchmarks.gpu.plan import SECTIONS, Section
from benchmarks.gpu.record import LOG, RESULTS, Record
from benchmarks.gpu.report import TARGETS, fallbacks
from benchmarks.gpu.wheels import check_total, needs

ROOT = Path(__file__).parents[2]
KILLS = 10


def argv_of(out: Path, *sections: str, minutes: float = 9.5) -> list[str]:
    """Return the command's arguments on a machine without a GPU."""
    return [
        "--device", "cpu", "--size", "tiny", "--out", str(out), "--folder", f"{out}-work",
        "--minutes", str(minutes), "--sections", *sections,
    ]  # fmt: skip


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
    """The second run takes the figures from the file, and judges the same targets."""
    argv = argv_of(tmp_path, "machine", "quick-1.7b")
    assert gpu.main(argv) == 0
    first = capfd.readouterr().out
    written = (tmp_path / RESULTS).read_bytes()
    figures = json.loads(written)["sections"]["quick-1.7b"]["figures"]
    assert [line["rows"] for line in figures["lines"].values()] == [1, 3]
    assert gpu.main(argv) == 0
    second = capfd.readouterr().out
    assert "done before" in second
    assert (tmp_path / RESULTS).read_bytes() == written
    last = json.loads(second.splitlines()[-1])
    assert last == json.loads(first.splitlines()[-1])
    assert last["sections"] == ["machine", "quick-1.7b"]
    assert last["targets"]["1.7B, s to load and capture, 256 rows"]["holds"] is True
    unmeasured = {"target": "<= 0", "measured": None, "holds": None}
    assert last["targets"]["tests that need a GPU, failed"] == unmeasured
    assert {file.name for file in tmp_path.iterdir()} == {RESULTS, LOG}


def test_what_is_left_is_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where time ends, a section outlasts its limit, or it fails with a traceback in the log."""
    record = Record(tmp_path / RESULTS)
    assert gpu.main(argv_of(tmp_path, "machine", minutes=0)) == 1
    assert "no time left" in capfd.readouterr().out
    assert record.state("machine") == ""
    monkeypatch.setattr(gpu, "_WORTH_A_START_S", 0)
    monkeypatch.setitem(SECTIONS, "machine", replace(SECTIONS["machine"], budget_s=0.3))
    assert gpu.main(argv_of(tmp_path, "machine")) == 1
    assert "took longer than 0 s" in capfd.readouterr().out
    (Path(f"{tmp_path}-work") / "cpu-tiny" / "tiny-tokenizer").write_text("not a folder")
    assert gpu.main(argv_of(tmp_path, "cap-0.6b")) == 1
    assert "CheckpointError" in capfd.readouterr().out
    assert "Traceback (most recent call last)" in (tmp_path / LOG).read_text()
    assert record.figures() == {}
    record.describe("nvidia-h200")
    with pytest.raises(SystemExit, match="figures of nvidia-h200, and this is cpu-tiny"):
        gpu.main(argv_of(tmp_path, "machine"))


def test_a_section_that_cannot_run_here_is_skipped_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The message names the missing package and the command that installs it."""
    assert "needs an NVIDIA GPU" in SECTIONS["plain-codec"].obstacle("cpu", tmp_path)
    assert SECTIONS["plain-codec"].obstacle("cuda:0", tmp_path) == ""
    lacking = Section("no_module.no_function", 90, modules=("no_such_package",))
    monkeypatch.setitem(SECTIONS, "flash", lacking)
    assert gpu.main(argv_of(tmp_path, "flash")) == 0
    said = capfd.readouterr().out
    assert "no_such_package not installed here; run `make gpu-wheels`" in said
    assert Record(tmp_path / RESULTS).state("flash").startswith("skipped: no_such_package")


@pytest.mark.parametrize(
    "section", ["cap-0.6b", pytest.param("load-1.7b", marks=pytest.mark.thorough)]
)
def test_a_section_keeps_the_figures_of_its_targets(tmp_path: Path, section: str) -> None:
    """They are figures that JSON can represent."""
    record = Record(tmp_path / RESULTS)
    ground = Ground("cpu", True, tmp_path, record, section)
    measure(ground)
    figures = record.figures()[section]
    ground.keep_all(dict.fromkeys(figures, "measured again"))
    assert record.figures()[section] == figures, "a finished figure is never changed"
    assert {each.figure[0] for each in TARGETS if each.section == section} <= set(figures)
    if section == "load-1.7b":
        assert figures["sections"].keys() == {"2/s", "3 at once"}
        assert figures["utterances"] > 0 and figures["failed"] == 0
        assert figures["sections"]["3 at once"]["server_cpu_percent"] > 0
    else:
        assert (figures["kernels"], figures["has_graphs"]) == ("plain", False)
        slower = figures | {"kernel_fault": "no ptxas", "restart_fault": "RuntimeError: capture"}
        assert fallbacks(figures) == []
        assert [each.split(": ", 1)[1] for each in fallbacks(slower)] == [
            "no ptxas", "RuntimeError: capture",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("measured", "bound", "holds"),
    [(5.0, "<=", True), (5.1, "<=", False), (5.0, ">=", True), (4.9, ">=", False)],
)
def test_a_target_holds_up_to_its_limit(measured: float, bound: Any, holds: bool) -> None:
    """Whether it is the largest or the smallest value."""
    target = replace(TARGETS[0], bound=bound, limit=5)
    lines = {"lines": {"1": {"ms_per_frame": measured}}}
    assert target.judge({"quick-1.7b": lines})["holds"] is holds


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_run_that_is_killed_loses_no_finished_figure(tmp_path: Path) -> None:
    """After kills at random moments the command finishes, and no figure has changed."""
    out, choose = tmp_path / "out", random.Random(0)
    record = Record(out / RESULTS)
    sections = ("machine", "quick-1.7b", "cap-0.6b", "plain")
    argv = [sys.executable, "-m", "benchmarks.gpu", *argv_of(out, *sections)]
    known: dict[tuple[str, ...], Any] = {}
    kills = 0
    for _ in range(KILLS):
        with subprocess.Popen(
            argv, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True
        ) as process:
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
    subprocess.run(argv, cwd=ROOT, check=True)
    assert known.items() <= leaves(record.figures()).items()
    assert [record.state(name) for name in sections] == ["done"] * len(sections)
    assert {file.name for file in out.iterdir()} == {RESULTS, LOG}


def wait_for_more(record: Record, figures: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a run has finished another figure or has ended."""
    deadline_s = time.monotonic() + 120
    while len(leaves(record.figures())) <= figures and process.poll() is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_all_packages_are_brought_that_the_machine_lacks() -> None:
    """Requirements of requirements, in the versions installed here, and none that it has."""
    found = needs("3.12")
    assert {"fastapi", "starlette", "anyio", "pydantic-core", "pyzmq", "soxr", "rich"} <= set(found)
    assert all(version[0].isdigit() for version in found.values())
    assert not {"torch", "transformers", "numpy", "tokenizers", "voiceagent-tts"} & set(found)
    assert not {"av", "pipecat-ai"} & set(found), "35 MB that a load of PCM does not use"


def test_wheels_that_no_machine_accepts_are_refused() -> None:
    """What is copied is limited to 60 MiB; the message names the largest file."""
    check_total({"a.whl": 56 * 2**20, "b.whl": 4 * 2**20})
    with pytest.raises(SystemExit, match=r"60\.0 MiB, expected at most 60 MiB; the largest is a"):
        check_total({"a.whl": 56 * 2**20, "b.whl": 4 * 2**20 + 1})
