"""Transfers small arrays between host and device through tensors at fixed addresses.

CUDA graphs read and write fixed addresses. The host does not wait for the device when it sends: the
data stays in pinned memory until the copy is done. On a CPU the calls are plain copies. Knows
nothing of the contents.
"""

from typing import Protocol

import numpy as np
import torch

_PINNED_COPIES = 64
"""Number of sends in flight before the next one waits for the oldest."""


class CopyEvent(Protocol):
    """Marks a copy in the current stream; `torch.cuda.Event` implements it."""

    def record(self) -> None:
        """Mark the work of the current stream so far."""
        ...

    def synchronize(self) -> None:
        """Wait on the host until that work is done; at once if nothing was marked."""
        ...


def new_event(device: torch.device) -> CopyEvent | None:
    """Return an event for copies to or from `device`; None where a copy is done when it returns.

    Tests replace this function to delay copies on a CPU.
    """
    return torch.cuda.Event() if device.type == "cuda" else None


class Upload:
    """Tensor on the device that the host writes."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.tensor = torch.zeros(shape, dtype=dtype, device=device)
        is_delayed = new_event(device) is not None
        copies = range(_PINNED_COPIES if is_delayed else 1)
        is_pinned = device.type == "cuda"
        self._pinned = [torch.zeros(shape, dtype=dtype, pin_memory=is_pinned) for _ in copies]
        self._sent = [new_event(device) for _ in copies]
        self._next = 0

    def send(self, array: np.ndarray) -> None:
        """Write `array` to the leading rows, in the order of the current stream."""
        pinned, sent = self._pinned[self._next], self._sent[self._next]
        self._next = (self._next + 1) % len(self._pinned)
        if sent is not None:
            sent.synchronize()
        count = len(array)
        pinned.numpy()[:count] = array
        self.tensor[:count].copy_(pinned[:count], non_blocking=True)
        if sent is not None:
            sent.record()


class Download:
    """Tensor on the device that the host reads."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.tensor = torch.zeros(shape, dtype=dtype, device=device)
        self._received = new_event(device)
        self._pinned = self.tensor
        if self._received is not None:
            self._pinned = torch.zeros(shape, dtype=dtype, pin_memory=device.type == "cuda")

    def send(self) -> None:
        """Start the copy to the host, in the order of the current stream."""
        if self._received is not None:
            self._pinned.copy_(self.tensor, non_blocking=True)
            self._received.record()

    def receive(self) -> np.ndarray:
        """Wait for the last copy and return it; valid until the next `send`."""
        if self._received is not None:
            self._received.synchronize()
        return self._pinned.numpy()
