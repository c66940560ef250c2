"""The command for a GPU: its sections on a CPU with tiny models, what it skips, what it judges."""

import json
from pathlib import Path

import pytest

from benchmarks.gpu import run as gpu
from benchmarks.gpu.report import TARGETS, verdicts
from benchmarks.gpu.sections import SECTIONS, Ground


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """A CPU and tiny models."""
    return Ground("cpu", is_tiny=True, folder=tmp_path)


def run(out: Path, *sections: str, minutes: float = 9.5) -> int:
    """The command, as a person on a machine without a GPU tries it."""
    return gpu.main(
        ["--device", "cpu", "--size", "tiny", "--out", str(out), "--folder", str(out / "work"),
         "--minutes", str(minutes), "--sections", *sections]
    )  # fmt: skip


def test_a_section_is_run_once_and_then_remembered(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The second time it is taken from the file, and the report is the same."""
    assert run(tmp_path, "checkpoints") == 0
    first = capfd.readouterr().out
    written = (tmp_path / "cpu-tiny.json").read_bytes()
    assert json.loads(written)["checkpoints"]["checkpoints_mb"] > 0
    assert run(tmp_path, "checkpoints") == 0
    second = capfd.readouterr().out
    assert "done before" in second
    assert (tmp_path / "cpu-tiny.json").read_bytes() == written
    last = json.loads(second.splitlines()[-1])
    assert last == json.loads(first.splitlines()[-1])
    assert last["sections"] == ["checkpoints"]


def test_sections_stop_where_time_ends(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What was not begun is not in the file, so that the same command goes on with it."""
    assert run(tmp_path, "machine", minutes=0) == 0
    assert "no time left" in capfd.readouterr().out
    assert not (tmp_path / "cpu-tiny.json").exists()


def test_what_outlasts_its_limit_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is told as a failure, and will be tried again."""
    monkeypatch.setitem(gpu.BUDGETS_S, "machine", 0.3)
    monkeypatch.setattr(gpu, "_WORTH_A_START_S", 0)
    assert run(tmp_path, "machine") == 1
    assert "took too long" in capfd.readouterr().out
    assert not (tmp_path / "cpu-tiny.json").exists()


def test_every_section_has_a_limit() -> None:
    """The two lists name the same sections, and targets look only at these."""
    assert set(gpu.BUDGETS_S) == set(SECTIONS)
    assert {target.section for target in TARGETS} <= set(SECTIONS)


@pytest.mark.parametrize("section", ["machine", "exactness", "quick-1.7b", "load-1.7b", "cap-0.6b"])
def test_sections_run_on_a_cpu(ground: Ground, section: str) -> None:
    """Each gives an object that JSON can hold, with the figures that targets look at."""
    figures = json.loads(json.dumps(SECTIONS[section](ground)))
    wanted = {target.figure[0] for target in TARGETS if target.section == section}
    assert wanted <= set(figures)
    if section == "quick-1.7b":
        assert [line["rows"] for line in figures["lines"]] == [1, 3]
        assert figures["prepared_first_frame_p95_ms"] > 0
    if section == "load-1.7b":
        assert figures["contexts"] > 0
        assert figures["failed"] == 0


def test_targets_are_judged() -> None:
    """On the right side of the limit they hold, without a figure nothing is claimed."""
    found = {
        "engine-1.7b": {"ms_per_frame_1": 4.0, "ms_per_frame_256": 15.5},
        "load-1.7b": {"sections": {"20/s": {"underruns": 1}}},
    }
    judged = verdicts(found)
    one = judged["1.7B, ms a frame, 1 row"]
    assert one == {"target": "<= 5", "measured": 4.0, "holds": True}
    assert judged["1.7B, ms a frame, 256 rows"]["holds"] is False
    assert judged["1.7B at 20/s, underruns"]["holds"] is False
    assert judged["1.7B at 1/s, underruns"]["holds"] is None
    unmeasured = judged["graphs: share of equal codes"]
    assert unmeasured == {"target": ">= 1", "measured": None, "holds": None}


def test_a_bare_machine_without_wheels_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names what is missing and the command that brings it."""
    assert gpu.bootstrap(tmp_path, tmp_path) == {}
    monkeypatch.setattr(gpu, "_NEEDED", ("no-such-package",))
    with pytest.raises(SystemExit, match="no-such-package.*make gpu-wheels"):
        gpu.bootstrap(tmp_path, tmp_path)
