"""`make setup` with missing parts, and what `make demo` installs."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(shutil.which("make") is None, reason="for people who have make")
def test_an_environment_that_was_left_half_made_is_made_again(tmp_path: Path) -> None:
    """Without python3-venv, Debian's Python creates an environment without pip; it is recreated."""
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


@pytest.mark.skipif(shutil.which("make") is None, reason="for people who have make")
def test_the_demo_installs_its_own_extra_and_the_tests_add_the_rest(tmp_path: Path) -> None:
    """`make demo` needs no PyTorch; each target installs once, and the tests' packages suffice."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name in ("python", "voiceagent-tts"):
        write_program(binaries / name, f'echo "{name} $@" >> {tmp_path / "log"}')

    def installed_by(target: str) -> list[str]:
        (tmp_path / "log").write_text("")
        subprocess.run(["make", *target.split()], cwd=tmp_path, check=True, capture_output=True)
        lines = (tmp_path / "log").read_text().splitlines()
        return [line.rpartition(" ")[2] for line in lines if "install --quiet" in line]

    assert installed_by("demo") == ["pip", ".[demo]"]
    assert installed_by("demo") == []
    natural = installed_by("demo VOICE=pocket")
    assert natural[0].startswith("torch==") and natural[1:] == [".[demo,pocket]"]
    assert installed_by("demo VOICE=pocket") == []
    assert installed_by("setup")[1].startswith("torch==")
    assert installed_by("setup") == installed_by("demo") == []


def write_program(path: Path, commands: str) -> None:
    """Write a shell script."""
    path.write_text(f"#!/bin/sh\n{commands}\n")
    path.chmod(0o755)
