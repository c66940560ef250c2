"""`make setup` with missing parts, what `make demo` installs, and by which program."""

import re
import runpy
import shutil
import subprocess
import sys
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
        return [line.partition("scripts/install ")[2] for line in lines if "install" in line]

    assert installed_by("demo") == ["--editable .[demo]"]
    assert installed_by("demo") == []
    (natural,) = installed_by("demo VOICE=pocket")
    assert re.fullmatch(r"torch==\S+ --editable \.\[demo,pocket\]", natural)
    assert installed_by("demo VOICE=pocket") == []
    (all_of_it,) = installed_by("setup TORCH=torch==2.0")
    assert re.fullmatch(r"torch==2\.0 --editable \.\[.*dev.*\]", all_of_it)
    assert installed_by("setup") == installed_by("demo") == []


def test_uv_gets_what_pip_is_configured_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Indexes, folders of wheels and constraints; the environment replaces what files say."""
    (tmp_path / "pip.conf").write_text(
        "[global]\nextra-index-url = https://one/simple\nfind-links = /a /b\ncert = /ca.pem\n"
        "[install]\nconstraint = /c.txt\n[download]\nindex-url = https://other/simple\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://two/simple https://three/simple")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("PIP_CERT", raising=False)
    install = runpy.run_path(str(ROOT / "scripts" / "install"))
    settings = install["pip_settings"]()
    assert settings["cert"] == "/ca.pem"
    assert install["uv_options"](settings)[1:] == [
        "--extra-index-url=https://two/simple",
        "--extra-index-url=https://three/simple",
        "--find-links=/a",
        "--find-links=/b",
        "--constraint=/c.txt",
    ]


@pytest.mark.parametrize("uv_status", [0, 1])
def test_pip_installs_where_uv_does_not(uv_status: int, tmp_path: Path) -> None:
    """Without uv, or when uv fails; the status is that of pip."""
    python = tmp_path / "python"
    write_program(
        python,
        f"""case "$*" in
*"-m uv --version") exit 0;;
*"-m uv pip"*) exit {uv_status};;
*"config list") exit 0;;
*) echo "$@" >> {tmp_path / "log"}; exit 3;;
esac""",
    )
    code = "import runpy, sys; sys.executable = sys.argv.pop(1); sys.argv.pop(0)\n"
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    argv = [sys.executable, "-c", code, python, ROOT / "scripts" / "install", "numpy"]
    status = subprocess.run(argv, check=False, capture_output=True).returncode
    assert status == (3 if uv_status else 0)
    log = tmp_path / "log"
    assert (log.read_text() if log.exists() else "") == (
        "-m pip install --quiet numpy\n" if uv_status else ""
    )


def write_program(path: Path, commands: str) -> None:
    path.write_text(f"#!/bin/sh\n{commands}\n")
    path.chmod(0o755)
