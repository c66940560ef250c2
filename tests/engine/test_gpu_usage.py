"""Memory and utilization of a GPU, read on a GPU."""

import torch

from testbed.gpu import ON_GPU
from voiceagent_tts.engine.gpu_usage import GpuUsage
from voiceagent_tts.server.worker_metrics import WORKER_METRICS

pytestmark = ON_GPU


def test_memory_and_utilization_are_read() -> None:
    """Used memory lies between what PyTorch has reserved and the total, and all names are known."""
    device = torch.device("cuda:0")
    held = torch.ones(1 << 20, device=device)
    values = GpuUsage(device).metrics()
    assert held.nbytes <= values["gpu_memory_reserved_bytes"] <= values["gpu_memory_used_bytes"]
    assert values["gpu_memory_used_bytes"] <= values["gpu_memory_total_bytes"]
    assert 0 <= values.get("gpu_utilization_ratio", 0) <= 1
    assert set(values) <= set(WORKER_METRICS)
