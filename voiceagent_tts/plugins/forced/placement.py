"""Decides where the forced aligner runs: on a GPU without an engine, or on the CPU."""

from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import torch

_NEEDED_BYTES = 4_400_000_000
"""1.84 GB of weights, one pass, and a CUDA context with its libraries."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the forced aligner runs."""

    device: str
    reason: str


def place_aligner(device: str | None, engine_devices: Sequence[str | None]) -> Placement:
    """Choose the device that the settings name, else the last free GPU with enough memory.

    A GPU with an engine is never chosen: two processes on one GPU are scheduled in turns, whatever
    priority they ask for, so an engine would lose up to half of it.
    """
    gpus = torch.cuda.device_count()
    if device is not None:
        device = _numbered(device, gpus)
        where = "on the CPU" if device == "cpu" else f"on {device}"
        return Placement(device, f"{where}: set by aligner_device")
    if not gpus:
        return Placement("cpu", "on the CPU: there is no GPU")
    used = {_numbered(each, gpus) for each in engine_devices}
    free = [number for number in range(gpus) if f"cuda:{number}" not in used]
    if not free:
        return Placement("cpu", "on the CPU: every GPU has an engine")
    free_bytes = _read_free_bytes(free)
    for number in reversed(free):
        if free_bytes[number] >= _NEEDED_BYTES:
            return Placement(f"cuda:{number}", f"on cuda:{number}, which no engine uses")
    return Placement(
        "cpu",
        f"on the CPU: no GPU without an engine has {_NEEDED_BYTES / 1e9:.1f} GB free, at most "
        f"{max(free_bytes.values()) / 1e9:.1f}",
    )


def _numbered(device: str | None, gpus: int) -> str:
    """Return a device with its number: `cuda` and, on a machine with GPUs, None mean `cuda:0`."""
    if device is None:
        return "cuda:0" if gpus else "cpu"
    return "cuda:0" if device == "cuda" else device


def _read_free_bytes(gpus: Sequence[int]) -> dict[int, int]:
    """Return the free memory of GPUs; 0 for those that cannot be read.

    Reading it creates a CUDA context of about half a gigabyte on each GPU. Another process
    therefore reads it and ends, so that this one uses no memory of GPUs that it does not need.
    """
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return dict(zip(gpus, pool.map(_free_bytes, gpus), strict=True))
    except BrokenExecutor:
        return dict.fromkeys(gpus, 0)


def _free_bytes(number: int) -> int:
    try:
        return torch.cuda.mem_get_info(number)[0]
    except (RuntimeError, AssertionError):  # no room for a context, or the GPU is not to be used
        return 0
