"""The GPUs of this machine with their free memory, and the place of a separate aligner on them."""

from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from multiprocessing import get_context

import torch

from voiceagent_tts.aligner.placement import (
    Card,
    Placement,
    numbered,
    place_alone,
    place_as_set,
)


def read_cards() -> list[Card]:
    """Return all GPUs with their free memory.

    Reading it creates a CUDA context of about half a gigabyte on the GPU. Another process therefore
    reads it and ends, so that this one uses no memory of GPUs that it does not need. A GPU that
    cannot be read has no free memory.
    """
    gpus = torch.cuda.device_count()
    if not gpus:
        return []
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(_read, gpus).result()
    except BrokenExecutor:
        return [Card(number, 0) for number in range(gpus)]


def place_in_own_process(device: str | None, engine_devices: Sequence[str | None]) -> Placement:
    """Decide where an aligner in a process of its own runs.

    Args:
        device: device in the settings; None for a choice.
        engine_devices: devices of all engines, as their own options name them.
    """
    gpus = torch.cuda.device_count()
    if device is not None:
        return place_as_set(numbered(device, gpus), None)
    return place_alone([numbered(each, gpus) for each in engine_devices], read_cards())


def _read(gpus: int) -> list[Card]:
    return [Card(number, _free_bytes(number)) for number in range(gpus)]


def _free_bytes(number: int) -> int:
    try:
        return torch.cuda.mem_get_info(number)[0]
    except (RuntimeError, AssertionError):  # no room for a context, or the GPU is not to be used
        return 0
