"""Memory and utilization of a GPU, read on a thread of their own."""

import threading
from collections.abc import Iterator

import pytest
import torch

from testbed.gpu import ON_GPU
from voiceagent_tts.engine.kind import KIND
from voiceagent_tts.engine.metrics import GpuUsage

GPU = torch.device("cuda:0")


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A driver that answers once this event is set, and has no management library."""
    answering = threading.Event()

    def memory(device: torch.device) -> tuple[int, int]:
        answering.wait()
        return 30, 80

    def utilization(device: torch.device) -> int:
        raise ModuleNotFoundError("pynvml")

    monkeypatch.setattr(torch.cuda, "mem_get_info", memory)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 20)
    monkeypatch.setattr(torch.cuda, "utilization", utilization)
    yield answering
    answering.set()


def test_a_slow_driver_is_not_waited_for(answering: threading.Event) -> None:
    """Metrics are those that were read last: none before the driver has answered."""
    usage = GpuUsage(GPU)
    assert usage.latest == {}
    answering.set()
    usage.close()
    usage._thread.join()
    assert usage.latest == {
        "gpu_memory_used_bytes": 50,
        "gpu_memory_total_bytes": 80,
        "gpu_memory_reserved_bytes": 20,
    }


@pytest.mark.parametrize("device", [pytest.param("cuda:0", marks=ON_GPU)])
def test_memory_and_utilization_are_read(device: str) -> None:
    """Used memory lies between what PyTorch has reserved and the total, and all names are known."""
    held = torch.ones(1 << 20, device=device)
    usage = GpuUsage(torch.device(device))
    usage.close()
    usage._thread.join()
    values = usage.latest
    assert held.nbytes <= values["gpu_memory_reserved_bytes"] <= values["gpu_memory_used_bytes"]
    assert values["gpu_memory_used_bytes"] <= values["gpu_memory_total_bytes"]
    assert 0 <= values.get("gpu_utilization_ratio", 0) <= 1
    assert set(values) <= set(KIND.metrics)
