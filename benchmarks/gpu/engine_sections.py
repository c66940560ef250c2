"""Sections that drive the engine's rows and the network directly, on weights that are in memory.

They need torch, transformers and numpy only.
"""

import importlib.metadata
import os
import platform
import subprocess
import time
import traceback
from typing import Any

import torch

from benchmarks.engine.bench import build_bench, rows_figures
from benchmarks.engine.card import device_name, measured_card, memory_gib
from benchmarks.engine.loading import load_rows
from benchmarks.gpu.ground import Ground
from voiceagent_tts.engine.sizes import WINDOWS_FRAMES
from voiceagent_tts.model.kernels import differences, fuse_codec

_PACKAGES = ("torch", "transformers", "numpy", "triton", "flash_attn", "flash_attn_3")
_MANY_ROWS = 64
_CARD_STATE = "clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_throttle_reasons.active"


def machine(ground: Ground) -> None:
    """Keep the installed versions, and the card's highest rates."""
    card = measured_card(ground.device)
    figures: dict[str, Any] = {
        "device": device_name(ground.device),
        "gib": round(memory_gib(ground.device), 1),
        "copy_tb_per_s": round(card.bytes_per_s / 1e12, 3),
        "tflop_per_s": round(card.flop_per_s / 1e12, 1),
        "python": platform.python_version(),
        "cpu_cores": len(os.sched_getaffinity(0)),
        "cuda": torch.version.cuda or "",
        "packages": {name: _version(name) for name in _PACKAGES},
    }
    if ground.device.type == "cuda":
        capability = torch.cuda.get_device_capability(ground.device)
        figures["capability"] = ".".join(map(str, capability))
        figures["has_bfloat16"] = torch.cuda.is_bf16_supported(including_emulation=False)
        figures["driver"] = _nvidia_smi("driver_version")
    ground.notes.keep_all(figures)


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
    notes, model = ground.notes, ground.model("1.7b")
    try:
        for name, difference, bound in differences(
            model.config.talker_config, ground.dtype, ground.device
        ):
            notes.keep({"difference": difference, "bound": bound}, "fused", name)
        codec = model.codec(ground.device, is_packed=False).decoder
        notes.keep(fuse_codec(codec, max(WINDOWS_FRAMES)) or "", "fused_codec_fault")
    except Exception:  # of an import, a compiler, a driver: all of it is worth knowing
        traceback.print_exc()
        notes.keep(traceback.format_exc(), "fused_traceback")


def engine(ground: Ground, size: str, rows: tuple[int, ...], **options: Any) -> None:
    """Keep milliseconds per frame by rows and stage, and a lone row's first audio.

    Raises:
        GraphFault: graphs cannot be captured.
    """
    notes, rows = ground.notes, ground.rows(rows)
    missing = [count for count in rows if not notes.has("lines", str(count))]
    if not missing and notes.has("first_audio"):
        return
    began_s = time.perf_counter()
    model = ground.model(size)
    bench = build_bench(
        ground.options(size, rows[-1], **options), model, model.codec_config.decoder_config
    )
    notes.keep_all({**bench.described, "load_s": round(time.perf_counter() - began_s, 1)})
    ran = {name: bench.described[name] for name in ("kernels", "has_graphs")}
    for count in missing:
        # Few steps do not show a codec that is slower than the talker by little.
        steps = ground.steps(24 if count < _MANY_ROWS else 96)
        line = bench.measure(count, ground.positions, steps).figures()
        line["ms_without_codec"] = bench.ms_without_codec(count, ground.positions, steps)
        notes.keep({**line, **ran, "card": _card_state(ground)}, "lines", str(count))
    if not notes.has("first_audio"):
        notes.keep(bench.first_sounds(ground.steps(20)), "first_audio")
    notes.keep_all(rows_figures(list(notes.figures()["lines"].values())))


def memory_cap(ground: Ground, size: str, gigabytes: float) -> None:
    """Keep whether a model with its graphs fits into a limited memory.

    Raises:
        GraphFault: graphs cannot be captured.
    """
    before = _used_bytes(ground)
    options = ground.options(size, 8, gpu_memory_gb=gigabytes, capacity=4096)
    rows = load_rows(options, ground.model(size))
    used_bytes = _used_bytes(ground) - before
    figures = {
        "cap_gb": gigabytes,
        "used_gb": round(used_bytes / 1e9, 2) if used_bytes else None,
        "rows": rows.runner.max_rows,
        "pages": rows.runner.pages,
    }
    ground.notes.keep_all({**rows.described(), **figures})


def _used_bytes(ground: Ground) -> int:
    """Return the memory in use on the whole card, the driver's share included."""
    return 0 if ground.device.type == "cpu" else int(_nvidia_smi("memory.used")) * 2**20
