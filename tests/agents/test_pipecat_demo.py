"""The demo's mistakes, as a person makes them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--url", "ws://127.0.0.1:1"], "no connection to 127.0.0.1:1"),
        (["--url", "http://127.0.0.1:1"], "expected ws://host or wss://host"),
        (["--out", str(ROOT / "README.md")], "File exists"),
    ],
)
def test_a_mistake_is_one_clear_line(options: list[str], sentence: str, tmp_path: Path) -> None:
    """What is wrong is said in the last line, with status 1; Pipecat's greeting is before it."""
    options = ["--out", str(tmp_path), *options]
    result = subprocess.run(
        [sys.executable, "-m", "agents.pipecat_demo", *options],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert sentence in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
