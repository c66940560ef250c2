"""Reads the memory and the utilization of an engine's GPU."""

import logging
import threading

import torch

_READ_EVERY_S = 1.0

_logger = logging.getLogger(__name__)


class GpuUsage:
    """Reports how full and how busy one GPU is, as a thread of its own reads it every second.

    A query takes up to 20 ms in a virtual machine, for which no row should wait.

    The utilization comes from NVIDIA's management library, which nvidia-ml-py loads. Where either
    is missing, or the GPU does not report it (a part of a GPU: MIG), it is left out.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._has_utilization = True
        self._latest: dict[str, float] = {}
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._read_on, name="gpu usage", daemon=True)
        self._thread.start()

    def metrics(self) -> dict[str, float]:
        """Return what was read last, under its names in the metrics; does not wait."""
        return self._latest

    def close(self) -> None:
        """Let the thread end; idempotent."""
        self._is_closed.set()

    def _read_on(self) -> None:
        is_last = False
        while not is_last:
            self._latest = self._read()
            is_last = self._is_closed.wait(_READ_EVERY_S)

    def _read(self) -> dict[str, float]:
        free_bytes, total_bytes = torch.cuda.mem_get_info(self._device)
        values = {
            "gpu_memory_used_bytes": float(total_bytes - free_bytes),
            "gpu_memory_total_bytes": float(total_bytes),
            "gpu_memory_reserved_bytes": float(torch.cuda.memory_reserved(self._device)),
        }
        if self._has_utilization and (busy := self._utilization()) is not None:
            values["gpu_utilization_ratio"] = busy
        return values

    def _utilization(self) -> float | None:
        """Read the share of time in which the GPU was busy; stops trying when it cannot be read."""
        try:
            return torch.cuda.utilization(self._device) / 100
        except Exception as error:
            # PyTorch passes on the errors of a module that may be missing, so no type is known.
            self._has_utilization = False
            _logger.warning("the utilization of %s cannot be read: %s", self._device, error)
            return None
