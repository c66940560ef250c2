"""Decides where the forced aligner runs: on a GPU of its own, beside the engine, or on the CPU.

Computes with described GPUs only; knows no torch. `engine_bytes` and the constants are estimates
from before anything is loaded; the engine's own plan measures.
"""

from collections.abc import Sequence
from dataclasses import dataclass

SHARED_BYTES = 3_000_000_000
"""Memory of the aligner in the engine's process: 1.84 GB of weights, and one bounded pass."""
_OWN_BYTES = SHARED_BYTES + 1_400_000_000
"""Memory in a process of its own, which has a CUDA context and libraries of its own."""
_ENGINE_BESIDE_BYTES = 4_000_000_000
"""Memory of an engine beside its weights: CUDA context, libraries, graphs and the first rows. With
the weights of the 0.6B model these are the 6 GiB that `doctor` asks for."""
_FREE_SHARE = 0.9
"""Share of the free memory that engine and aligner use together."""
_GB = 1e9


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU, as it is before an engine or aligner has been loaded onto it.

    Attributes:
        number: N of `cuda:N`.
        free_bytes: free memory.
    """

    number: int
    free_bytes: int

    @property
    def device(self) -> str:
        """Its name for PyTorch."""
        return f"cuda:{self.number}"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the forced aligner runs.

    Attributes:
        device: `cpu` or `cuda:N`.
        is_shared: whether it runs in the process of the engine on this device.
        reason: place and reason in words, for logs and reports.
    """

    device: str
    is_shared: bool
    reason: str


def engine_bytes(weights_bytes: int) -> int:
    """Return the memory that an engine with these weights needs at least."""
    return weights_bytes + _ENGINE_BESIDE_BYTES


def numbered(device: str | None, gpus: int) -> str:
    """Return a device with its number: `cuda` and, on a machine with GPUs, None mean `cuda:0`."""
    if device is None:
        return "cuda:0" if gpus else "cpu"
    return "cuda:0" if device == "cuda" else device


def place_beside(
    engine: str, needed_bytes: int, limit_bytes: int | None, used: Sequence[str], cards: list[Card]
) -> Placement:
    """Place the aligner, seen from an engine's process before the engine has been loaded.

    A GPU that no engine uses is best, because there the aligner delays no listener. Next is the
    engine's own, if it has memory for both.

    Args:
        engine: device of the engine, numbered.
        needed_bytes: memory that this engine needs at least.
        limit_bytes: maximum memory of this process; None for the free memory of the GPU.
        used: devices of all engines, numbered, one entry for each engine.
        cards: all GPUs.
    """
    alone = place_alone(used, cards)
    own = next((card for card in cards if card.device == engine), None)
    if alone.device != "cpu" or own is None:
        return alone
    others_bytes = (used.count(engine) - 1) * needed_bytes
    room = int(_FREE_SHARE * own.free_bytes) - others_bytes
    room = room if limit_bytes is None else min(room, limit_bytes)
    both = needed_bytes + SHARED_BYTES
    sizes = f"engine and aligner need {both / _GB:.1f} GB and may use {max(room, 0) / _GB:.1f}"
    if room >= both:
        return Placement(engine, True, f"on {engine}, in the engine's process: {sizes}")
    return Placement("cpu", False, f"on the CPU: on {engine}, {sizes}")


def place_alone(used: Sequence[str], cards: list[Card]) -> Placement:
    """Place the aligner in a process of its own: the last GPU without an engine, or the CPU.

    Args:
        used: devices of all engines, numbered.
        cards: all GPUs.
    """
    free = [card for card in cards if card.device not in used]
    for card in reversed(free):
        if card.free_bytes >= _OWN_BYTES:
            return Placement(card.device, False, f"on {card.device}, which no engine uses")
    if not cards:
        return Placement("cpu", False, "on the CPU: there is no GPU")
    if not free:
        return Placement("cpu", False, "on the CPU: every GPU has an engine, without memory for it")
    most = max(card.free_bytes for card in free)
    return Placement(
        "cpu",
        False,
        f"on the CPU: no GPU without an engine has {_OWN_BYTES / _GB:.1f} GB free, at most "
        f"{most / _GB:.1f}",
    )


def place_as_set(device: str, engine: str | None) -> Placement:
    """Return the place that a setting names.

    Args:
        device: `cpu` or `cuda:N`, numbered.
        engine: device of the engine in this process, numbered; None for a process without one.
    """
    is_shared = device == engine and device != "cpu"
    where = "on the CPU" if device == "cpu" else f"on {device}"
    if is_shared:
        where += ", in the engine's process"
    return Placement(device, is_shared, f"{where}: aligner_device says so")
