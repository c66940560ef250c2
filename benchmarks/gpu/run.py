"""Everything worth doing on a GPU, in one command of less than ten minutes, that can go on later.

The sections of `benchmarks.gpu.sections` run one after the other, the most telling first, each in
a process of its own with a limit of time, so that none takes the others along. What a section found
is written at once, to a file named after the card; a section that is in it is not run again, so
that the same command goes on where time ran out. It ends with tables, plots and one JSON line in
which every target stands beside what was measured (`benchmarks.gpu.report`).

The machine needs Python, torch, transformers and numpy. What else is missing there is installed
from a folder of wheels, which `make gpu-wheels` fills where there is a network. Until then, only
the standard library is used here.
"""

import argparse
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUDGETS_S = {
    "machine": 40,
    "checkpoints": 90,
    "quick-1.7b": 90,
    "exactness": 90,
    "load-1.7b": 180,
    "engine-1.7b": 120,
    "peers-1.7b": 120,
    "tests": 60,
    "cap-1.7b": 60,
    "cap-0.6b": 60,
    "engine-0.6b": 90,
    "paced-1.7b": 120,
    "aligner": 40,
    "flash": 60,
    "sdpa": 60,
    "plain": 60,
    "fp8": 60,
    "int8": 60,
    "no-tf32": 60,
}
"""Seconds that each section may take, in the order in which they run."""

_NEEDED = ("pydantic-settings", "rich", "soundfile", "soxr", "typer", "voiceagent-tts")
"""Packages that show whether what rows of a model take is here."""
_WORTH_A_START_S = 15
_RESULTS = Path(__file__).parents[1] / "results"
_REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class GpuRun:
    """One run of this command.

    Attributes:
        device: `cuda` or `cpu`.
        size: of models, `full` or `tiny`.
        results: file of what was found.
        folder: for checkpoints, packages and logs.
        wheels: folder of wheels, as `benchmarks.gpu.wheels` fills it.
        ends: when the last section must have ended, on the monotonic clock.
    """

    device: str
    size: str
    results: Path
    folder: Path
    wheels: Path
    ends: float

    def found(self) -> dict[str, Any]:
        """What is known so far: section -> its figures."""
        return json.loads(self.results.read_text()) if self.results.exists() else {}

    def section(self, section: str, environment: dict[str, str]) -> str:
        """Run a section, unless it is done; returns how that went, for people."""
        found = self.found()
        if section in found:
            return "done before"
        limit_s = min(BUDGETS_S[section], self.ends - time.monotonic())
        if limit_s < _WORTH_A_START_S:
            return "no time left"
        began_s = time.monotonic()
        figures, failure = self._figures(section, limit_s, environment)
        took_s = time.monotonic() - began_s
        if figures is None:
            return f"failed after {took_s:.0f} s: {failure}"
        self._write(found | {section: {**figures, "section_s": round(took_s, 1)}})
        return f"{took_s:.0f} s"

    def _figures(
        self, section: str, limit_s: float, environment: dict[str, str]
    ) -> tuple[dict[str, Any] | None, str]:
        result, log = (self.folder / f"{section}.{kind}" for kind in ("json", "log"))
        result.unlink(missing_ok=True)
        argv = [
            sys.executable, "-m", "benchmarks.gpu.sections", section, "--result", str(result),
            "--folder", str(self.folder), "--device", self.device, "--size", self.size,
        ]  # fmt: skip
        if (self.wheels / "peers").is_dir():
            argv += ["--wheels", str(self.wheels / "peers")]
        with log.open("wb") as output:
            ended = _run_within(argv, limit_s, environment, output.fileno())
        if ended and result.exists():
            return json.loads(result.read_text()), ""
        return None, _last_line(log) if ended else "took too long"

    def _write(self, found: dict[str, Any]) -> None:
        partial = self.results.with_suffix(".partial")
        partial.write_text(json.dumps(found, indent=1) + "\n")
        partial.rename(self.results)


def _run_within(argv: Sequence[str], limit_s: float, environment: dict[str, str], log: int) -> bool:
    """Whether a process ended in time; with it end those that it has started."""
    process = subprocess.Popen(
        argv,
        cwd=_REPOSITORY,
        env=os.environ | environment,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return True


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else f"see {log}"


def bootstrap(wheels: Path, folder: Path) -> dict[str, str]:
    """Install what is missing from a folder of wheels, beside what the machine has.

    Returns:
        What a child's environment needs to find it.

    Raises:
        SystemExit: something is missing, and there are no wheels.
    """
    missing = [name for name in _NEEDED if not _is_installed(name)]
    if not missing:
        return {}
    parts = [part for part in ("engine", "server") if (wheels / part).is_dir()]
    if not parts:
        names = ", ".join(missing)
        sys.exit(f"without {names}; expected wheels in {wheels}: run `make gpu-wheels` elsewhere")
    target = folder / "-".join(("site", *parts))
    if not target.exists():
        files = [str(file) for part in parts for file in sorted((wheels / part).glob("*.whl"))]
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
        partial = folder / "site.partial"
        subprocess.run([*pip, "--upgrade", "--target", str(partial), *files], check=True)
        partial.rename(target)
    path = os.pathsep.join(filter(None, (str(target), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path}


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def card_name(device: str) -> str:
    """The card's name as part of a file's."""
    if device == "cpu":
        return "cpu"
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    name = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is wanted and not yet done, then report; the status is 1 where a section failed."""
    options = _parser().parse_args(argv)
    suffix = "-tiny" if options.size == "tiny" else ""
    name = f"{card_name(options.device)}{suffix}"
    folder = options.folder.absolute() / name
    folder.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    results = options.out.absolute() / f"{name}.json"
    ends = time.monotonic() + options.minutes * 60
    wheels = options.wheels.absolute()
    environment = bootstrap(wheels, folder)
    run = GpuRun(options.device, options.size, results, folder, wheels, ends)
    has_failed = False
    for section in options.sections or BUDGETS_S:
        outcome = run.section(section, environment)
        has_failed = has_failed or "failed" in outcome
        print(f"{section:<12} {outcome}", flush=True)
    report = [sys.executable, "-m", "benchmarks.gpu.report", str(results)]
    subprocess.run(report, check=True, cwd=_REPOSITORY, env=os.environ | environment)
    return int(has_failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--size", default="full", choices=("full", "tiny"), help="of models")
    parser.add_argument("--sections", nargs="+", choices=tuple(BUDGETS_S), help="default: all")
    parser.add_argument("--minutes", type=float, default=9.5, help="for all sections")
    parser.add_argument("--out", type=Path, default=_RESULTS, help="for JSON and PNG")
    parser.add_argument("--folder", type=Path, default=Path("out/gpu"), help="for the rest")
    parser.add_argument("--wheels", type=Path, default=_REPOSITORY / ".wheels")
    return parser
