"""Reads the memory and the utilization of an engine's GPU."""

import logging

import torch

_logger = logging.getLogger(__name__)


class GpuUsage:
    """Reports how full and how busy one GPU is.

    The utilization comes from NVIDIA's management library, which nvidia-ml-py loads. Where either
    is missing, or the GPU does not report it (a part of a GPU: MIG), it is left out.

    Args:
        device: a CUDA device of this process.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._has_utilization = True

    def metrics(self) -> dict[str, float]:
        """Return what can be read now, under its names in the metrics."""
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
