"""Wrong command lines of the demo."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.command_line import CommandHere
from testbed.pocket import SMALL_MODEL, PocketHome

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--url", "ws://127.0.0.1:1"], "no server at 127.0.0.1:1; start one"),
        (["--out", str(ROOT / "README.md")], "File exists"),
    ],
)
def test_a_mistake_is_one_clear_line(options: list[str], sentence: str, tmp_path: Path) -> None:
    """It says what is wrong, and the exit status is 1; Pipecat's banner does not come before."""
    result = run("voiceagent_tts", "demo", "--out", str(tmp_path), *options)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert sentence in line
    assert "Traceback" not in result.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised when Pipecat is imported
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--url", "ftp://127.0.0.1:1"], "expected ws://host or wss://host"),
        (["--engine", "qwen3"], "expected hibari, espeak or pocket; got qwen3"),
    ],
)
def test_an_option_that_is_wrong_is_named(
    command_here: CommandHere, options: list[str], sentence: str
) -> None:
    """In one line, before anything starts."""
    refused = command_here("demo", *options)
    assert (refused.status, refused.errors.count("\n")) == (1, 1)
    assert sentence in refused.errors


def test_the_agent_of_that_name_is_the_demo() -> None:
    """`python -m agents.pipecat_demo` takes the demo's options."""
    shown = run("agents.pipecat_demo", "--help")
    assert shown.stdout.partition("Interrupt")[2]
    assert (
        shown.stdout.partition("Interrupt")[2]
        == (run("voiceagent_tts", "demo", "--help").stdout.partition("Interrupt")[2])
    )


@pytest.mark.thorough
@pytest.mark.realtime
def test_the_demo_runs_with_pocket_tts(tmp_path: Path) -> None:
    """With random weights: English answers are cut, and the history has their beginnings.

    Random weights speak noise, several times slower than a voice. No word sounds at a known time,
    and the user's next question cuts answers that are not meant to be cut, and the status can be 1.
    """
    PocketHome(tmp_path / "hub", is_short=False).store()
    environment = {
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "1",
        "VOICEAGENT_TTS_MODELS": SMALL_MODEL,
    }
    out = tmp_path / "out"
    ended = run("voiceagent_tts", "demo", "--out", str(out), "--engine", "pocket", **environment)
    assert "Traceback" not in ended.stderr, ended.stderr
    document = json.loads((out / "demo.json").read_text())
    # On a slow machine an answer may have been played as far as it was made when it is cut.
    cut = [turn for turn in document["turns"] if turn["committed"] != turn["answer"]]
    assert len(cut) >= 3
    assert all(turn["answer"].startswith(turn["committed"]) for turn in document["turns"])
    assert {turn["language"] for turn in document["turns"]} == {"en"}
    assert (out / "demo.wav").stat().st_size > 100_000


def run(module: str, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m module *argv` in the clone."""
    return subprocess.run(
        [sys.executable, "-m", module, *argv],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
