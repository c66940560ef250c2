"""The parity benchmark reports equal output as equal and finds every difference."""

import json
import shutil
import sys
from collections.abc import Callable, Container
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import typer

from benchmarks.parity import __main__ as parity
from testbed.parity_reference import REFERENCE, all_cases

CHOSEN = ("base-0b6-01", "base-0b6-14", "voice_design-1b7-01")
"""Cases with sound: a clone by its embedding, one by its reference, and a designed voice."""
Change = Callable[[dict[str, np.ndarray]], None]


@pytest.fixture(autouse=True)
def few_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode each sound in two partitions; the benchmark as a program tries all of them."""
    monkeypatch.setattr(parity, "PARTITIONS", 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small folder of official results."""
    for checkpoint in ("base-0b6", "voice_design-1b7"):
        (tmp_path / checkpoint).symlink_to(REFERENCE / checkpoint)
    for name in ("reference.wav", "reference-prompt.npz", *(f"{case}.npz" for case in CHOSEN)):
        shutil.copy(REFERENCE / name, tmp_path)
    shorten_codec_frames(tmp_path / "codec-130-frames.npz")
    choose_cases(tmp_path, CHOSEN)
    return tmp_path


def choose_cases(folder: Path, names: Container[str]) -> None:
    """Write the list of cases that the benchmark compares."""
    cases = [case.arguments for case in all_cases() if str(case) in names]
    (folder / "cases.json").write_text(json.dumps({"cases": cases}))


def shorten_codec_frames(target: Path) -> None:
    """Keep only the first frames of the codec case; the decoder is causal."""
    with np.load(REFERENCE / target.name) as arrays:
        np.savez(target, codes=arrays["codes"][:20], wav=arrays["wav"][: 20 * 1920])


def status_of(folder: Path) -> object:
    """Run the command line in this process; return its exit status."""
    with (
        patch.object(sys, "argv", ["parity", "--reference", str(folder)]),
        pytest.raises(SystemExit) as ended,
    ):
        typer.run(parity.main)
    return ended.value.code


def change_arrays(path: Path, change: Change) -> None:
    """Change stored results of the official package."""
    with np.load(path) as stored:
        arrays = dict(stored)
    change(arrays)
    np.savez(path, **arrays)


def change_code(arrays: dict[str, np.ndarray]) -> None:
    """Change one code."""
    arrays["codes"][2, 7] = (arrays["codes"][2, 7] + 1) % 64


def test_a_difference_is_status_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A difference gives exit status 1, so that scripts notice it."""
    choose_cases(folder, CHOSEN[::2])
    change_arrays(folder / "voice_design-1b7-01.npz", change_code)
    assert status_of(folder) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["equal"] == 1


def test_a_folder_without_cases_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line says which files were expected, and where."""
    assert status_of(tmp_path) == 1
    assert "expected a cases.json" in capsys.readouterr().err


def test_all_that_is_equal_is_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The benchmark prints every case and ends with the figures and status 0."""
    assert status_of(folder) == 0
    out, shown = capsys.readouterr()
    result = json.loads(out.splitlines()[-1])
    error, stream, rounding = (
        result.pop(f"max_{what}") for what in ("wav_error", "stream_error", "rounding")
    )
    assert result == {"cases": 3, "equal": 3, "near_ties": 0}
    assert error <= 1e-4
    assert 0 < stream <= 1e-6 < rounding <= 1e-4
    for name in (*CHOSEN, "reference.wav", "codec-130-frames"):
        assert name in shown
