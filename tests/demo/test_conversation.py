"""Wrong command lines of the demo."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--url", "ws://127.0.0.1:1"], "no connection to 127.0.0.1:1"),
        (["--url", "ftp://127.0.0.1:1"], "expected ws://host or wss://host"),
        (["--out", str(ROOT / "README.md")], "File exists"),
    ],
)
def test_a_mistake_is_one_clear_line(options: list[str], sentence: str, tmp_path: Path) -> None:
    """The last line says what is wrong, and the exit status is 1; Pipecat's banner comes before."""
    result = run("voiceagent_tts", "demo", "--out", str(tmp_path), *options)
    assert result.returncode == 1
    assert sentence in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_the_agent_of_that_name_is_the_demo() -> None:
    """`python -m agents.pipecat_demo` takes the demo's options."""
    shown = run("agents.pipecat_demo", "--help")
    assert shown.stdout.partition("Interrupt")[2]
    assert (
        shown.stdout.partition("Interrupt")[2]
        == (run("voiceagent_tts", "demo", "--help").stdout.partition("Interrupt")[2])
    )


def run(module: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m module *argv` in the clone."""
    return subprocess.run(
        [sys.executable, "-m", module, *argv],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
