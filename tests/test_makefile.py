"""`make setup` on a machine where things are missing."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(shutil.which("make") is None, reason="for people who have make")
def test_an_environment_that_was_left_half_made_is_made_again(tmp_path: Path) -> None:
    """Without python3-venv, Debian's Python leaves one without pip, which is not taken for one."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    write_program(binaries / "python", "exit 1  # No module named pip")
    whole = tmp_path / "whole"
    write_program(whole, "exit 0")
    write_program(tmp_path / "python3.11", f"cp {whole} {binaries / 'python'}")
    argv = ["make", "setup", f"PYTHON={tmp_path / 'python3.11'}"]
    result = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / ".venv" / ".installed").exists()


def write_program(path: Path, commands: str) -> None:
    """A shell script."""
    path.write_text(f"#!/bin/sh\n{commands}\n")
    path.chmod(0o755)
