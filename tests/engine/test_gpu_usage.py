"""Memory and utilization of a GPU, read on a thread of their own."""

import threading
from collections.abc import Iterator

import pytest
import torch

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
