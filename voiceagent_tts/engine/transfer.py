"""Transfers small arrays between host and device through tensors at fixed addresses.

CUDA graphs read and write fixed addresses. The host does not wait for the device when it sends: the
data stays in pinned memory until the copy is done. On a CPU the calls are plain copies. Knows
nothing of the contents.
"""

import numpy as np
import torch

_PINNED_COPIES = 32
"""Number of sends in flight before the next one waits for the oldest."""


class Upload:
    """Tensor on the device that the host writes.

    Args:
        shape: shape of the tensor.
        dtype: data type of the tensor.
        device: device of the tensor.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.tensor = torch.zeros(shape, dtype=dtype, device=device)
        self._is_cuda = device.type == "cuda"
        copies = _PINNED_COPIES if self._is_cuda else 1
        self._pinned = [
            torch.zeros(shape, dtype=dtype, pin_memory=self._is_cuda) for _ in range(copies)
        ]
        self._sent = [torch.cuda.Event() if self._is_cuda else None for _ in range(copies)]
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
    """Tensor on the device that the host reads.

    Args:
        shape: shape of the tensor.
        dtype: data type of the tensor.
        device: device of the tensor.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.tensor = torch.zeros(shape, dtype=dtype, device=device)
        is_cuda = device.type == "cuda"
        self._pinned = torch.zeros(shape, dtype=dtype, pin_memory=True) if is_cuda else self.tensor
        self._received = torch.cuda.Event() if is_cuda else None

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
