"""What `benchmarks.gpu` does on a card, section by section; each runs in a process of its own.

A section gives one JSON object. Full-size checkpoints with random weights are made on the device
where they are not there yet; with `--size tiny` all of it runs on a CPU, in little time, to no
figures that mean anything.
"""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer

from benchmarks.alignment.aligner_latency import measure as measure_aligner
from benchmarks.engine.bench import ROWS, build_bench, measure_rows
from benchmarks.engine.card import device_name, measured_card
from benchmarks.engine.exactness import choices_against_cpu, graphs_against_plain
from benchmarks.engine.peers import Contest, figures_of, sides_on
from testbed.checkpoint import ready_checkpoint, write_aligner
from testbed.published import ALIGNER, CODEC, SIZES, model_config
from testbed.tiny import TINY_ALIGNER, TINY_CODEC, tiny_model
from voiceagent_tts.aligner.forced.load import load_aligner
from voiceagent_tts.engine.load import Qwen3Options, load_runner

Figures = dict[str, Any]

_QUICK_ROWS = (1, 16, 64)
_CAPACITY = 512
_POSITIONS, _TINY_POSITIONS = 200, 40
_REPOSITORY = Path(__file__).parents[2]
_LOAD = ("--frames=64", "--rows=256", "--seconds=15", "--limit-ms=40")
"""Sentences of five seconds."""
_TESTS = (
    "tests/engine",
    "tests/model/test_fused.py",
    "tests/model/test_fused_sampler.py",
    "tests/benchmarks/test_exactness.py",
)
"""Others need packages that a GPU machine has no use for."""
_PACKAGES = ("torch", "transformers", "numpy", "triton", "flash_attn", "flash_attn_3", "torchao")


@dataclass(frozen=True, slots=True)
class Ground:
    """Where sections run.

    Attributes:
        device: `cuda` or `cpu`.
        is_tiny: whether models are tiny ones.
        folder: of checkpoints, packages and logs; made by whoever needs it.
        wheels: of peers' packages; downloaded without it.
    """

    device: str
    is_tiny: bool
    folder: Path
    wheels: Path | None = None

    @property
    def dtype(self) -> torch.dtype:
        """That is served here."""
        return torch.float32 if self.device == "cpu" else torch.bfloat16

    @property
    def precision(self) -> str:
        """Its name."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def positions(self) -> int:
        """That rows look back over."""
        return _TINY_POSITIONS if self.is_tiny else _POSITIONS

    def model(self, size: str) -> Path:
        """A CustomVoice model of a size, made where there is none."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.is_tiny:
            return ready_checkpoint(self.folder / "tiny", tiny_model(), TINY_CODEC)
        config = model_config(SIZES[size], "custom_voice")
        return ready_checkpoint(self.folder / f"random-{size}", config, CODEC, device=self.device)

    def rows(self, wanted: tuple[int, ...]) -> tuple[int, ...]:
        """Numbers of rows that are worth the time here."""
        return (1, 3) if self.is_tiny else wanted

    def steps(self, wanted: int) -> int:
        """The same of steps and rounds."""
        return min(wanted, 4) if self.is_tiny else wanted


def machine(ground: Ground) -> Figures:
    """What is here, and what it can do at most."""
    device = torch.device(ground.device)
    card = measured_card(device)
    figures: Figures = {
        "device": device_name(device),
        "gib": round(card.gib, 1),
        "copy_tb_per_s": round(card.bytes_per_s / 1e12, 3),
        "tflop_per_s": round(card.flop_per_s / 1e12, 1),
        "python": platform.python_version(),
        "cpu_cores": len(os.sched_getaffinity(0)),
        "cuda": torch.version.cuda or "",
        "packages": {name: _version(name) for name in _PACKAGES},
    }
    if device.type == "cuda":
        figures["capability"] = ".".join(map(str, torch.cuda.get_device_capability(device)))
        figures["has_bfloat16"] = torch.cuda.is_bf16_supported(including_emulation=False)
        figures["driver"] = _nvidia_smi("driver_version")
    return figures


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _nvidia_smi(field: str) -> str:
    query = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def checkpoints(ground: Ground) -> Figures:
    """Make what the other sections need."""
    began_s = time.perf_counter()
    folders = {ground.model(size) for size in SIZES}
    taken_s = time.perf_counter() - began_s
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return {
        "checkpoints_mb": round(sum(file.stat().st_size for file in files) / 1e6, 1),
        "checkpoints_s": round(taken_s, 1),
        "disk_free_gb": round(shutil.disk_usage(ground.folder).free / 1e9),
    }


def exactness(ground: Ground) -> Figures:
    """Graphs against plain passes, and choices against a CPU's."""
    model = ground.model("0.6b")
    graphs = graphs_against_plain(model, ground.device, ground.dtype, 4, ground.steps(24))
    served = torch.bfloat16
    return graphs | choices_against_cpu(model, ground.device, served, ground.steps(72))


def tests(ground: Ground) -> Figures:
    """The tests that need a GPU."""
    argv = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *_TESTS]
    result = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    sys.stderr.write(result.stdout)
    last = result.stdout.strip().splitlines()[-1:]
    return {"gpu_tests_status": result.returncode, "gpu_tests": "".join(last)}


def engine(ground: Ground, size: str, rows: tuple[int, ...], **options: Any) -> Figures:
    """Milliseconds per frame by rows and stage, and a lone row's first sound."""
    rows = ground.rows(rows)
    began_s = time.perf_counter()
    bench, described = build_bench(_options(ground, size, rows[-1], **options))
    load_s = time.perf_counter() - began_s
    figures = measure_rows(bench, rows, ground.positions, ground.steps(24))
    first = bench.first_sounds(ground.steps(20))
    return {**described, "load_s": round(load_s, 1), **figures, **first}


def _options(ground: Ground, size: str, rows: int, **options: Any) -> Qwen3Options:
    fields: dict[str, Any] = {"capacity": _CAPACITY, "precision": ground.precision, **options}
    return Qwen3Options(str(ground.model(size)), ground.device, rows=rows, **fields)


def memory_cap(ground: Ground, size: str, gigabytes: float) -> Figures:
    """Whether a model speaks within so much memory, graphs included."""
    model, before = ground.model(size), _used_bytes(ground)
    options = Qwen3Options(str(model), ground.device, rows=8, gpu_memory_gb=gigabytes)
    _, runner = load_runner(options)
    used_bytes = _used_bytes(ground) - before
    return {
        "cap_gb": gigabytes,
        "used_gb": round(used_bytes / 1e9, 2) if used_bytes else None,
        "rows": runner.max_rows,
        "pages": runner.free_pages,
    }


def _used_bytes(ground: Ground) -> int:
    """Of the whole card: what the driver takes for this process counts, too."""
    return 0 if ground.device == "cpu" else int(_nvidia_smi("memory.used")) * 2**20


def load(ground: Ground, size: str, arguments: tuple[str, ...]) -> Figures:
    """The real server under load, as `benchmarks.service.load` puts it."""
    model = ["--model", str(ground.model(size).absolute()), "--device", ground.device]
    files = ["--json", "load.json", "--png", "load.png"]
    if ground.is_tiny:
        arguments = ("--frames=12", "--rows=4", "--rates=2", "--together=3", "--seconds=1")
    argv = [sys.executable, "-m", "benchmarks.service.load", *model, *arguments, *files]
    path = os.pathsep.join(filter(None, (str(_REPOSITORY), os.environ.get("PYTHONPATH"))))
    settings = {"VOICEAGENT_TTS_ALIGNER": "off", "PYTHONPATH": path}
    subprocess.run(argv, check=True, cwd=ground.folder, env=os.environ | settings)
    return json.loads((ground.folder / "load.json").read_text())


def aligner(ground: Ground) -> Figures:
    """How long the forced aligner takes."""
    folder = ground.folder / "aligner"
    write_aligner(folder, TINY_ALIGNER if ground.is_tiny else ALIGNER, seed=0)
    loaded = load_aligner(folder, ground.device)
    return {"median": measure_aligner(loaded, ground.steps(10))}


def peers(ground: Ground, size: str) -> Figures:
    """Others on the same checkpoint."""
    packages = ground.folder / "peers"
    packages.mkdir(parents=True, exist_ok=True)
    contest = Contest(
        ground.model(size).absolute(), ground.precision, 16 if ground.is_tiny else 96,
        ground.steps(3), packages, ground.wheels,
    )  # fmt: skip
    return figures_of(contest.measure(side) for side in sides_on(ground.device))


SECTIONS: Mapping[str, Callable[[Ground], Figures]] = {
    "machine": machine,
    "checkpoints": checkpoints,
    "exactness": exactness,
    "quick-1.7b": partial(engine, size="1.7b", rows=_QUICK_ROWS),
    "load-1.7b": partial(
        load, size="1.7b", arguments=(*_LOAD, "--rates=1,20", "--together=64,256")
    ),
    "paced-1.7b": partial(
        load, size="1.7b", arguments=(*_LOAD, "--rates=", "--together=256", "--max-lead-s=0.5")
    ),
    "tests": tests,
    "engine-1.7b": partial(engine, size="1.7b", rows=ROWS),
    "peers-1.7b": partial(peers, size="1.7b"),
    "cap-1.7b": partial(memory_cap, size="1.7b", gigabytes=8.0),
    "cap-0.6b": partial(memory_cap, size="0.6b", gigabytes=6.0),
    "engine-0.6b": partial(engine, size="0.6b", rows=ROWS),
    "aligner": aligner,
    "sdpa": partial(engine, size="1.7b", rows=_QUICK_ROWS, attention="sdpa"),
    "flash": partial(engine, size="1.7b", rows=_QUICK_ROWS, attention="flash"),
    "plain": partial(engine, size="1.7b", rows=_QUICK_ROWS, kernels="plain"),
    "fp8": partial(engine, size="1.7b", rows=_QUICK_ROWS, quantize="fp8"),
    "int8": partial(engine, size="1.7b", rows=_QUICK_ROWS, quantize="int8"),
    "no-tf32": partial(engine, size="1.7b", rows=_QUICK_ROWS, has_tf32=False),
}


def main(
    section: Annotated[str, typer.Argument(help=", ".join(SECTIONS))],
    result: Annotated[Path, typer.Option(help="File for the JSON object.")],
    folder: Annotated[Path, typer.Option(help="For checkpoints, packages and logs.")],
    device: Annotated[str, typer.Option()] = "cuda",
    size: Annotated[Literal["full", "tiny"], typer.Option()] = "full",
    wheels: Annotated[Path | None, typer.Option(help="Of peers' packages.")] = None,
) -> None:
    """Run one section."""
    ground = Ground(device, size == "tiny", folder, wheels)
    figures = SECTIONS[section](ground)
    partial_file = result.with_suffix(".partial")
    partial_file.write_text(json.dumps(figures))
    partial_file.rename(result)


if __name__ == "__main__":
    typer.run(main)
