"""Fresh environments with the built package and one extra, and nothing of this environment."""

import os
import runpy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from voiceagent_tts.offspring import Following

ROOT = Path(__file__).parent.parent


def build_distributions(folder: Path) -> tuple[Path, Path]:
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True)
    (wheel,) = folder.glob("*.whl")
    (source,) = folder.glob("*.tar.gz")
    return wheel, source


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment, and an empty folder that its programs run in."""

    folder: Path
    cwd: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def command(self) -> Path:
        return self.folder / "bin" / "voiceagent-tts"

    @property
    def size_bytes(self) -> int:
        files = [path for path in self.folder.rglob("*") if not path.is_symlink()]
        return sum(path.stat().st_size for path in files if path.is_file())

    @property
    def packages(self) -> set[str]:
        code = "import importlib.metadata as m; print(*(d.name for d in m.distributions()))"
        return {name.lower() for name in self.run(self.python, "-c", code).split()}

    def run(self, *argv: str | Path) -> str:
        """Run a program, which must succeed, and return its standard output."""
        done = self.attempt(*argv)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def attempt(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, cwd=self.cwd, env=_variables(), capture_output=True, text=True, check=False
        )

    def start(self, *argv: str | Path) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            argv,
            cwd=self.cwd,
            env=_variables(),
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=Following(os.getpid()),
        )


def install_with_uv(folder: Path, *requirements: str, resolution: str = "highest") -> Environment:
    """Make an environment with uv, as the README says, from where pip is configured to look.

    Args:
        folder: where the environment is made.
        requirements: what is installed.
        resolution: of its versions; with `lowest-direct`, the oldest that the package allows.
    """
    environment = _empty(folder)
    script = runpy.run_path(str(ROOT / "scripts" / "install"))
    options = [*script["uv_options"](script["pip_settings"]()), "--python", environment.python]
    _check("uv", "venv", "--quiet", "--python", sys.executable, environment.folder)
    versions = ["--resolution", resolution]
    _check("uv", "pip", "install", "--quiet", *options, *versions, *requirements)
    return environment


def install_with_pip(folder: Path, requirement: str) -> Environment:
    environment = _empty(folder)
    _check("venv", "--without-pip", environment.folder)  # pip's own copy takes 10 s to unpack
    _check("pip", "--python", environment.python, "install", "--quiet", requirement)
    return environment


def _variables() -> dict[str, str]:
    """Return this process's environment variables without its paths and settings."""
    hidden = ("PYTHON", "VOICEAGENT_TTS_", "VIRTUAL_ENV")
    return {k: v for k, v in os.environ.items() if not k.startswith(hidden)}


def _empty(folder: Path) -> Environment:
    environment = Environment(folder / "environment", folder / "empty")
    environment.cwd.mkdir(parents=True)
    return environment


def _check(module: str, *argv: str | Path) -> None:
    subprocess.run([sys.executable, "-m", module, *argv], check=True)
