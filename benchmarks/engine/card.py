"""The highest rates of this device: from the datasheet of its name, or measured here.

A roofline of measured rates is one that this machine can reach; the datasheet's is the vendor's.
"""

import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.engine.roofline import Card, known_card
from voiceagent_tts.engine.cuda_graph import Stream

_ROUNDS = 10
_GPU_COPY_BYTES, _CPU_COPY_BYTES = 2**32, 2**26
"""Several times the size of any cache; on a small GPU an eighth of its memory."""
_GPU_WIDTH, _CPU_WIDTH = 8192, 512
_NODES, _NODE_WIDTH = 1000, 2048


def device_name(device: torch.device) -> str:
    """Return the driver's name of the device; `cpu` for any processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def measured_card(device: torch.device) -> Card:
    """Measure the rates: copies of large blocks, read and write counted, and matrix products."""
    is_gpu = device.type == "cuda"
    gib = torch.cuda.get_device_properties(device).total_memory / 2**30 if is_gpu else 0.0
    flop_per_s = _flop_per_s(device, _GPU_WIDTH if is_gpu else _CPU_WIDTH)
    copied = min(_GPU_COPY_BYTES, int(gib * 2**27)) if is_gpu else _CPU_COPY_BYTES
    return Card(f"{device_name(device)}, measured", _bytes_per_s(device, copied), flop_per_s, gib)


def card_of(device: torch.device) -> Card:
    """Return the datasheet's figures if the name is known, else measured ones."""
    return known_card(device_name(device)) or measured_card(device)


@torch.inference_mode()
def node_seconds(device: torch.device) -> dict[str, float]:
    """Return the seconds of one of many small operations that wait for each other, in one graph.

    `node` adds to a vector of 2,048 numbers; `product_node` multiplies one with a matrix that stays
    in the cache, as cuBLAS does for a lone row. What they take beyond their work is the price of a
    launch.
    """
    vector = torch.zeros(_NODE_WIDTH, dtype=torch.bfloat16, device=device)
    row = torch.zeros(1, _NODE_WIDTH, dtype=torch.bfloat16, device=device)
    weight = torch.zeros(_NODE_WIDTH, _NODE_WIDTH, dtype=torch.bfloat16, device=device)
    into = torch.zeros_like(row)
    count = _NODES if device.type == "cuda" else 1

    def add() -> None:
        for _ in range(count):
            vector.add_(1)

    def multiply() -> None:
        for _ in range(count // 2 or 1):
            torch.mm(row, weight, out=into)
            torch.mm(into, weight, out=row)

    stream = Stream(device, is_captured=True)
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # the tensors were made on another stream
    with stream.entered():
        adding, multiplying = stream.compile(add), stream.compile(multiply)
        return {
            "node": _seconds(adding, device) / count,
            "product_node": _seconds(multiplying, device) / (2 * (count // 2 or 1)),
        }


@torch.inference_mode()
def replay_seconds(device: torch.device) -> dict[str, float]:
    """Return the seconds of the first replay of a graph, which uploads it, and of a later one."""
    vector = torch.zeros(_NODE_WIDTH, device=device)

    def add() -> None:
        for _ in range(_NODES if device.type == "cuda" else 1):
            vector.add_(1)

    stream = Stream(device, is_captured=True)
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # the vector was made on another stream
    first_s: list[float] = []
    later_s: list[float] = []
    with stream.entered():
        for _ in range(_ROUNDS):
            replay = stream.compile(add)
            first_s.append(_once(replay, device))
            later_s.append(_once(replay, device))
    return {"first_replay": statistics.median(first_s), "later_replay": statistics.median(later_s)}


def _once(work: Callable[[], object], device: torch.device) -> float:
    began_s = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began_s


def _bytes_per_s(device: torch.device, count: int) -> float:
    source = torch.zeros(count, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * count / _seconds(lambda: target.copy_(source), device)


def _flop_per_s(device: torch.device, width: int) -> float:
    left, right = torch.randn(2, width, width, device=device).bfloat16()
    return 2 * width**3 / _seconds(lambda: left @ right, device)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the median time of `_ROUNDS` rounds, after two rounds of warm-up."""
    took = [_once(work, device) for _ in range(_ROUNDS + 2)]
    return statistics.median(took[2:])
