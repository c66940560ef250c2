"""The parity benchmark reports equal output as equal and finds every difference."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Container
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import typer
from rich.progress import Progress

from benchmarks.parity import run
from benchmarks.parity.run import compare_codes, compare_folder, main
from testbed.official_cases import GREEDY, Case
from testbed.parity_reference import REFERENCE, all_cases
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.model.checkpoint import load_checkpoint

CHOSEN = ("base-0b6-01", "base-0b6-14", "voice_design-1b7-01")
"""Cases with sound: a clone by its embedding, one by its reference, and a designed voice."""
Change = Callable[[dict[str, np.ndarray]], None]


@pytest.fixture(autouse=True)
def few_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode each sound in two partitions; the benchmark as a program tries all of them."""
    monkeypatch.setattr(run, "PARTITIONS", 2)


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
        typer.run(main)
    return ended.value.code


def change_arrays(path: Path, change: Change) -> None:
    """Change stored results of the official package."""
    with np.load(path) as stored:
        arrays = dict(stored)
    change(arrays)
    np.savez(path, **arrays)


def assert_all_is_equal(out: str, shown: str) -> None:
    """Check the figures that the benchmark prints, and the table that it shows."""
    result = json.loads(out.splitlines()[-1])
    error, stream, rounding = (
        result.pop(f"max_{what}") for what in ("wav_error", "stream_error", "rounding")
    )
    assert result == {"cases": 3, "equal": 3, "near_ties": 0}
    assert error <= 1e-4
    assert 0 < stream <= 1e-6 < rounding <= 1e-4
    for name in (*CHOSEN, "reference.wav", "codec-130-frames"):
        assert name in shown


def test_all_that_is_equal_is_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The benchmark prints every case and ends with the figures and status 0."""
    assert status_of(folder) == 0
    assert_all_is_equal(*capsys.readouterr())


@pytest.mark.thorough
def test_all_that_is_equal_is_counted_by_the_program(folder: Path) -> None:
    """As a program, with all partitions, the benchmark prints and ends in the same way."""
    argv = [sys.executable, "-m", "benchmarks.parity", "--reference", str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert_all_is_equal(done.stdout, done.stderr)


def change_code(arrays: dict[str, np.ndarray]) -> None:
    """Change one code."""
    arrays["codes"][2, 7] = (arrays["codes"][2, 7] + 1) % 64


def cut_codes(arrays: dict[str, np.ndarray]) -> None:
    """Drop the last frames."""
    arrays["codes"] = arrays["codes"][:-1]
    del arrays["wav"]


def change_sound(arrays: dict[str, np.ndarray]) -> None:
    """Change one sample."""
    arrays["wav"][300] += 3e-4


def change_reference_code(arrays: dict[str, np.ndarray]) -> None:
    """Change one code of the reference."""
    arrays["ref_code"][3, 3] = (arrays["ref_code"][3, 3] + 1) % 64


def change_embedding(arrays: dict[str, np.ndarray]) -> None:
    """Change one number of the speaker embedding."""
    arrays["speaker_embedding"][5] += 3e-4


@pytest.mark.parametrize(
    "changes",
    [  # if two results are changed together, neither depends on the other's change
        {"base-0b6-14": cut_codes, "codec-130-frames": change_sound},
        pytest.param({"base-0b6-14": change_sound}, marks=pytest.mark.thorough),
        pytest.param(
            {"voice_design-1b7-01": change_code, "reference-prompt": change_reference_code},
            marks=pytest.mark.thorough,
        ),
        {"reference-prompt": change_embedding},
    ],
)
def test_a_difference_is_found(folder: Path, changes: dict[str, Change]) -> None:
    """A changed code, sample or number of the official results is reported at its place."""
    choose_cases(folder, {"base-0b6-14", *changes})  # that case has a reference
    for name, change in changes.items():
        change_arrays(folder / f"{name}.npz", change)
    found = compare_folder(folder, Progress(disable=True))
    differs = {name.replace("reference-prompt", "reference.wav") for name in changes}
    assert {finding.name for finding in found if not finding.holds} == differs


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


def test_a_near_tie_is_none_of_ours(tmp_path: Path) -> None:
    """If two codes are equally likely, the official package may have chosen either of them."""
    checkpoint = load_checkpoint(REFERENCE / "voice_design-1b7", is_packed=False)
    network = checkpoint.network
    arguments = next(case for case in all_cases() if str(case) == CHOSEN[2]).arguments
    case = Case(tmp_path, arguments | {"max_new_tokens": 7})
    request = Request(case.prompt(checkpoint), GREEDY, case.max_frames)
    (codes,) = generate_codes(network, [request], rows=1, capacity=512)
    head = network.code_predictor.heads[-1].weight
    chosen = int(codes[-1, -1])
    other = next(code for code in range(64) if code not in codes[:, -1])
    head[other] = head[chosen]  # the very last choice is a tie
    (made,) = generate_codes(network, [request], rows=1, capacity=512)
    official = made.clone()
    official[-1, -1] = other if made[-1, -1] == chosen else chosen
    np.savez(tmp_path / f"{case}.npz", codes=official.numpy())
    assert compare_codes(network, case, request.prompt, made) == "near tie"
