"""The highest rates of this device: from the datasheet of its name, or measured here.

A roofline of measured rates is one that this machine can reach; the datasheet's is the vendor's.
"""

import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.engine.roofline import Card, known_card

_ROUNDS = 10
_GPU_COPY_BYTES, _CPU_COPY_BYTES = 2**32, 2**26
"""Several times the size of any cache; on a small GPU an eighth of its memory."""
_GPU_WIDTH, _CPU_WIDTH = 8192, 512


def device_name(device: torch.device) -> str:
    """Return the driver's name of the device; `cpu` for any processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def memory_gib(device: torch.device) -> float:
    """Return the memory of a GPU; 0 for a processor."""
    if device.type != "cuda":
        return 0.0
    return torch.cuda.get_device_properties(device).total_memory / 2**30


def measured_card(device: torch.device) -> Card:
    """Measure the rates: copies of large blocks, read and write counted, and matrix products."""
    is_gpu = device.type == "cuda"
    flop_per_s = _flop_per_s(device, _GPU_WIDTH if is_gpu else _CPU_WIDTH)
    copied = min(_GPU_COPY_BYTES, int(memory_gib(device) * 2**27)) if is_gpu else _CPU_COPY_BYTES
    return Card(f"{device_name(device)}, measured", _bytes_per_s(device, copied), flop_per_s)


def card_of(device: torch.device) -> Card:
    """Return the datasheet's figures if the name is known, else measured ones."""
    return known_card(device_name(device)) or measured_card(device)


def _bytes_per_s(device: torch.device, count: int) -> float:
    source = torch.zeros(count, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * count / _seconds(lambda: target.copy_(source), device)


def _flop_per_s(device: torch.device, width: int) -> float:
    left, right = torch.randn(2, width, width, device=device).bfloat16()
    return 2 * width**3 / _seconds(lambda: left @ right, device)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the median time of `_ROUNDS` rounds, after two rounds of warm-up."""
    took: list[float] = []
    for _ in range(_ROUNDS + 2):
        began_s = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took.append(time.perf_counter() - began_s)
    return statistics.median(took[2:])
