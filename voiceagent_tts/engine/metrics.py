"""Metrics of an engine: totals since it started, the state of its contexts, and its GPU."""

import logging
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import torch

from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sequence import EngineContext, SequenceState

_READ_EVERY_S = 1.0

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """Totals since the engine started.

    Attributes:
        discarded_seconds: audio that was generated and not heard because of a cancel.
    """

    starts: int = 0
    underruns: int = 0
    underrun_seconds: float = 0.0
    discarded_seconds: float = 0.0
    refused: int = 0
    lost_texts: int = 0

    def metrics(self) -> dict[str, float]:
        """Return the totals under their names in the metrics."""
        return {f"{name}_total": total for name, total in asdict(self).items()}


def device_metrics(runner: Runner) -> dict[str, float]:
    """Return what the time of steps went to, and how passes run."""
    timings = runner.timings
    return {
        "steps_total": timings.steps,
        "frames_total": timings.frames,
        "prefill_seconds_total": timings.prefill_s,
        "predictor_seconds_total": timings.predictor_s,
        "talker_seconds_total": timings.talker_s,
        "codec_seconds_total": timings.codec_s,
        "host_seconds_total": timings.host_s,
        "graph_memory_bytes": runner.graph_bytes,
        "has_graphs": runner.has_graphs,
        "has_fused_kernels": runner.kernels == "fused",
        "has_fused_codec": runner.codec_kernels == "fused",
    }


def context_metrics(contexts: Iterable[EngineContext], now: float) -> dict[str, float]:
    """Return the state of contexts at `now`."""
    active = [context for context in contexts if context.active is not None]
    heard = [c for c in active if c.has_spoken and not c.is_batch and c.can_step]
    starved = (c.active is not None and c.active.state is SequenceState.STARVED for c in active)
    return {
        "used_rows": len(active),
        "starved_rows": sum(starved),
        "lowest_lead_seconds": min((c.lead_s(now) for c in heard), default=0.0),
    }


class GpuUsage:
    """Reports how full and how busy one GPU is, as a thread of its own reads it every second.

    A query takes up to 20 ms in a virtual machine, for which no row should wait.

    The utilization comes from NVIDIA's management library, which nvidia-ml-py loads. Where either
    is missing, or the GPU does not report it (a part of a GPU: MIG), it is left out.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._has_utilization = True
        self.latest: dict[str, float] = {}
        """What was read last."""
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._read_on, name="gpu usage", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let the thread end; idempotent."""
        self._is_closed.set()

    def _read_on(self) -> None:
        self.latest = self._read()
        while not self._is_closed.wait(_READ_EVERY_S):
            self.latest = self._read()

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
