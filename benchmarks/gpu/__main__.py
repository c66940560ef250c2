"""Run all GPU benchmarks in one command of less than ten minutes that can be repeated.

The sections of `benchmarks.gpu.plan` run in order, each in a separate process with a time limit.
Every finished figure is written at once to `results.json` in the folder of `--out`, and the output
of the sections to `log.txt` in that folder. Finished figures are not measured again: the same
command continues where a run ended, was killed, or ran out of time. It ends with tables and
one JSON line that compares every target with its figure (`benchmarks.gpu.report`); the status is 1
until every section is done, or cannot run here.

The machine needs Python, torch, transformers and numpy. Sections that need more are skipped, unless
there is a folder of wheels, which `make gpu-wheels` fills on a machine with a network. This process
needs the standard library only.
"""

import argparse
import fcntl
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.plan import SECTIONS
from benchmarks.gpu.record import LOG, RESULTS, Record
from benchmarks.gpu.report import fallbacks, report
from voiceagent_tts.offspring import Following

_WORTH_A_START_S = 15
_RESULTS = Path(__file__).parents[1] / "results"
_REPOSITORY = Path(__file__).parents[2]
_TRACEBACK_LINES = 40


@dataclass(frozen=True, slots=True)
class GpuRun:
    """One run of this command.

    Attributes:
        device: `cuda` or `cpu`.
        size: size of the models, `full` or `tiny`.
        out: folder for the results and the log.
        folder: folder for checkpoints and packages.
        wheels: folder of wheels, as `benchmarks.gpu.wheels` fills it.
        ends: when the last section must have ended, on the monotonic clock.
    """

    device: str
    size: str
    out: Path
    folder: Path
    wheels: Path
    ends: float

    @property
    def record(self) -> Record:
        """The figures so far."""
        return Record(self.out / RESULTS)

    def say(self, text: str) -> None:
        """Print a line, and write it to the log."""
        print(text, flush=True)
        with (self.out / LOG).open("a") as log:
            log.write(f"{text}\n")

    def section(self, name: str, environment: dict[str, str]) -> bool:
        """Run a section, unless it is done or cannot run here; returns False if it is left."""
        if self.record.state(name) == "done":
            self.say(f"{name:<14} done before")
            return True
        obstacle = SECTIONS[name].obstacle(self.device, self.wheels)
        if obstacle:
            self.record.set_state(name, f"skipped: {obstacle}")
            self.say(f"{name:<14} skipped: {obstacle}")
            return True
        limit_s = min(SECTIONS[name].budget_s, self.ends - time.monotonic())
        if limit_s < _WORTH_A_START_S:
            self.say(f"{name:<14} no time left")
            return False
        began_s = time.monotonic()
        failure = self._run(name, limit_s, environment)
        took_s = time.monotonic() - began_s
        self.record.set_state(name, f"failed: {failure}" if failure else "done", took_s)
        outcome = f"failed after {took_s:.0f} s: {failure}" if failure else f"{took_s:.0f} s"
        self.say(f"{name:<14} {outcome}")
        for fallback in fallbacks(self.record.figures().get(name, {})):
            self.say(f"{name:<14} !!! {fallback}")
        return not failure

    def _run(self, name: str, limit_s: float, environment: dict[str, str]) -> str:
        """Run a section in a separate process; return why it failed, or nothing."""
        argv = [
            sys.executable, "-u", "-m", "benchmarks.gpu", "--measure", name,
            "--out", str(self.out), "--folder", str(self.folder),
            "--device", self.device, "--size", self.size,
        ]  # fmt: skip
        log = self.out / LOG
        with log.open("ab") as output:
            output.write(f"\n=== {name}, {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode())
            output.flush()
            start = output.tell()
            status = _status_of(argv, limit_s, environment, output.fileno())
        if status == 0:
            return ""
        if status is None:
            return f"took longer than {limit_s:.0f} s; what was finished is kept"
        lines = log.read_bytes()[start:].decode(errors="replace").strip().splitlines()
        for line in lines[-_TRACEBACK_LINES:]:
            print(f"  {line}", file=sys.stderr)
        return lines[-1] if lines else f"status {status}"


def _status_of(
    argv: Sequence[str], limit_s: float, environment: dict[str, str], log: int
) -> int | None:
    """Return the status of a process; None if its time ended, and it with all that it started."""
    process = subprocess.Popen(
        argv,
        cwd=_REPOSITORY,
        env=os.environ | environment,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=Following(os.getpid(), signal.SIGKILL),
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def card_name(device: str) -> str:
    """Return the card's name as part of a file's."""
    if device == "cpu":
        return "cpu"
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    name = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def install_missing(wheels: Path, folder: Path) -> dict[str, str]:
    """Install what is missing, where there are wheels, beside what the machine has.

    What is installed can be imported by this process, too. A wheel that pip refuses, for another
    Python say, is named on standard error and left out: sections that need it are skipped.

    Returns variables for the environment of a process that uses them.
    """
    files = sorted(map(str, wheels.glob("*.whl")))
    wanted = {module for section in SECTIONS.values() for module in section.modules}
    if not files or all(importlib.util.find_spec(module) for module in wanted):
        return {}
    target = folder / "site"
    if not target.exists():
        partial = folder / "site.partial"
        # Together is fast; where pip refuses one wheel, it installs none of them.
        if not _install(files, partial):
            for file in files:
                if not _install([file], partial):
                    print(f"not installed: {file}", file=sys.stderr)
        partial.rename(target)
    sys.path.append(str(target))
    importlib.invalidate_caches()
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(target))))
    return {"PYTHONPATH": path}


def _install(files: Sequence[str], target: Path) -> bool:
    """Install wheels without their requirements; returns False where pip refuses one."""
    target.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    return subprocess.run([*pip, "--upgrade", "--target", str(target), *files]).returncode == 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the requested sections that are not done, then report; the status is 1 if one is left."""
    options = _parser().parse_args(argv)
    if options.measure:
        return _measure(options)
    name = card_name(options.device) + ("-tiny" if options.size == "tiny" else "")
    out = (options.out or _RESULTS / name).absolute()
    folder = options.folder.absolute() / name
    for each in (out, folder):
        each.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + options.minutes * 60
    run = GpuRun(options.device, options.size, out, folder, options.wheels.absolute(), ends)
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)  # waits until no other run uses the folder
    known = run.record.read().get("card", name)
    if known != name:
        sys.exit(f"{out} has figures of {known}, and this is {name}; choose another --out")
    run.record.describe(name)
    environment = install_missing(run.wheels, folder)
    left = [name for name in options.sections or SECTIONS if not run.section(name, environment)]
    for line in report(run.record):
        run.say(line)
    os.close(lock)
    return int(bool(left))


def _measure(options: argparse.Namespace) -> int:
    from benchmarks.gpu.ground import Ground, measure  # which need torch

    record = Record(options.out / RESULTS)
    is_tiny = options.size == "tiny"
    measure(Ground(options.device, is_tiny, options.folder, record, options.measure))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--size", default="full", choices=("full", "tiny"), help="of the models")
    parser.add_argument("--sections", nargs="+", choices=tuple(SECTIONS), help="default: all")
    parser.add_argument("--measure", choices=tuple(SECTIONS), help=argparse.SUPPRESS)
    parser.add_argument("--minutes", type=float, default=9.5, help="for all sections; default 9.5")
    parser.add_argument("--out", type=Path, help="for results; default benchmarks/results/CARD")
    parser.add_argument("--folder", type=Path, default=Path("out/gpu"), help="for temporary files")
    parser.add_argument("--wheels", type=Path, default=_REPOSITORY / ".wheels")
    return parser


if __name__ == "__main__":
    sys.exit(main())
