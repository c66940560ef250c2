"""Sections that drive the engine's rows and the network directly, on weights that are in memory.

They need torch, transformers and numpy only.
"""

import importlib.metadata
import os
import platform
import subprocess
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.benchmark import Timer

from benchmarks.gpu.ground import Ground
from benchmarks.gpu.steps import Steps
from voiceagent_tts.engine.ladder import load_lower
from voiceagent_tts.engine.load import ModelSource, load_runner
from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import WINDOWS_FRAMES
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.kernels import differences, fuse_codec
from voiceagent_tts.seam.engine_kind import RUNG_VARIABLE

_PACKAGES = ("torch", "transformers", "numpy", "triton", "flash_attn", "flash_attn_3")
_MANY_ROWS = 64
_CAPACITY = 512
_POSITIONS = 200
"""Positions that rows look back over."""
_CARD_STATE = "clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_throttle_reasons.active"
_ROUNDS = 10


def machine(ground: Ground) -> None:
    """Keep the installed versions, and the device's highest rates."""
    is_gpu = ground.device.type == "cuda"
    figures: dict[str, Any] = {
        "device": torch.cuda.get_device_name(ground.device) if is_gpu else "cpu",
        "copy_tb_per_s": round(_bytes_per_s(ground.device) / 1e12, 3),
        "tflop_per_s": round(_flop_per_s(ground.device) / 1e12, 1),
        "python": platform.python_version(),
        "cpu_cores": len(os.sched_getaffinity(0)),
        "cuda": torch.version.cuda or "",
        "packages": {name: _version(name) for name in _PACKAGES},
    }
    if is_gpu:
        properties = torch.cuda.get_device_properties(ground.device)
        figures["gib"] = round(properties.total_memory / 2**30, 1)
        figures["capability"] = f"{properties.major}.{properties.minor}"
        figures["has_bfloat16"] = torch.cuda.is_bf16_supported(including_emulation=False)
        figures["driver"] = _nvidia_smi("driver_version")
    ground.keep_all(figures)


def _bytes_per_s(device: torch.device) -> float:
    """Measure copies of blocks that are larger than any cache; read and write are counted."""
    count = 2**32 if device.type == "cuda" else 2**26
    if device.type == "cuda":
        count = min(count, torch.cuda.get_device_properties(device).total_memory // 8)
    source = torch.zeros(count, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * count / _seconds(lambda: target.copy_(source))


def _flop_per_s(device: torch.device) -> float:
    """Measure products of large matrices in bfloat16."""
    width = 8192 if device.type == "cuda" else 512
    left, right = torch.randn(2, width, width, device=device).bfloat16()
    return 2 * width**3 / _seconds(lambda: left @ right)


def _seconds(work: Callable[[], object]) -> float:
    """Return the mean time of some rounds, after a warm-up, until the device has ended."""
    return Timer("work()", globals={"work": work}).timeit(_ROUNDS).median


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _nvidia_smi(field: str) -> str:
    query = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def _card_state(ground: Ground) -> str:
    """Return clocks in MHz, power in watts, temperature and throttle reasons: a card under load."""
    if ground.device.type == "cpu":
        return ""
    try:
        return _nvidia_smi(_CARD_STATE)
    except subprocess.CalledProcessError as error:  # of a driver that lacks one of the fields
        return str(error)


def faults(ground: Ground) -> None:
    """Keep whether fused kernels can run here, with full tracebacks where they cannot."""
    model = ground.model("1.7b")
    try:
        for name, difference, bound in differences(
            model.config.talker_config, ground.dtype, ground.device
        ):
            ground.keep({"difference": difference, "bound": bound}, "fused", name)
        codec = model.codec(ground.device).decoder
        ground.keep(fuse_codec(codec, max(WINDOWS_FRAMES)) or "", "fused_codec_fault")
    except Exception:  # of an import, a compiler, a driver: all of it is worth knowing
        traceback.print_exc()
        ground.keep(traceback.format_exc(), "fused_traceback")


def engine(ground: Ground, size: str, rows: tuple[int, ...], **options: Any) -> None:
    """Keep milliseconds per frame by rows and stage, and a lone row's first audio."""
    rows = ground.worth(rows, (1, 3))
    missing = [count for count in rows if str(count) not in ground.figures("lines")]
    if not missing and ground.figures("first_audio"):
        return
    began_s = time.perf_counter()
    checkpoint, runner = _load(ground, size, rows[-1], **options)
    ground.keep(round(time.perf_counter() - began_s, 1), "load_s")
    ran = {name: runner.description[name] for name in ("kernels", "has_graphs")}
    steps = Steps(checkpoint, runner)
    for count in missing:
        # Few steps do not show a codec that is slower than the talker by little.
        measured = ground.worth(24 if count < _MANY_ROWS else 96, 4)
        line = steps.line(count, ground.worth(_POSITIONS, 40), measured)
        ground.keep({**line, **ran, "card": _card_state(ground)}, "lines", str(count))
    if not ground.figures("first_audio"):
        ground.keep(steps.first_sounds(ground.worth(20, 4)), "first_audio")


def memory_cap(ground: Ground, size: str, gigabytes: float) -> None:
    """Keep whether a model with its graphs fits into a limited memory."""
    before = _used_bytes(ground)
    _, runner = _load(ground, size, 8, gpu_memory_gb=gigabytes, capacity=4096)
    used_bytes = _used_bytes(ground) - before
    ground.keep_all(
        {
            "cap_gb": gigabytes,
            "used_gb": round(used_bytes / 1e9, 2) if used_bytes else None,
            "rows": runner.max_rows,
            "pages": runner.pages,
        }
    )


def _load(ground: Ground, size: str, rows: int, **options: Any) -> tuple[Checkpoint, Runner]:
    """Load a model's rows as a server does, and keep how they run.

    Where a GPU fails, the process starts anew with less, as a worker does.
    """
    model = ground.model(size)
    source = ModelSource(model.name, model.config, model.checkpoint, model.codec)

    def load(allowed: Qwen3Options) -> tuple[Checkpoint, Runner]:
        return load_runner(allowed, source)

    fields = {"capacity": _CAPACITY, "precision": ground.precision, "rows": rows, **options}
    checkpoint, runner = load_lower(Qwen3Options(model.name, ground.device_name, **fields), load)
    ground.keep_all(
        {
            "model": source.name,
            "precision": ground.precision,
            **runner.description,
        }
    )
    if restart_fault := os.environ.get(RUNG_VARIABLE, "").partition(" ")[2]:
        ground.keep(restart_fault, "restart_fault")
    return checkpoint, runner


def _used_bytes(ground: Ground) -> int:
    """Return the memory in use on the whole card, the driver's share included."""
    return 0 if ground.device.type == "cpu" else int(_nvidia_smi("memory.used")) * 2**20
