"""The memory plan of a GPU, with simulated memory."""

import pytest
import torch

from voiceagent_tts.engine import gpu_memory
from voiceagent_tts.engine.kv_cache import MemoryNeeds

GB = 10**9
CUDA = torch.device("cuda:0")


@pytest.mark.parametrize("free", [4 * GB, 8 * GB, 80 * GB])
@pytest.mark.parametrize("loaded", [0, 900_000_000])
def test_pages_leave_room_for_libraries(
    monkeypatch: pytest.MonkeyPatch, free: int, loaded: int
) -> None:
    """cuBLAS, cuDNN and kernels fit beside all pages, loaded before or after the plan.

    They take up to 0.9 GB of a GPU in addition to the process's CUDA context.
    """
    weights = 2 * GB
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free - loaded, 0))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: weights)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: weights)
    needs = MemoryNeeds(
        weights=gpu_memory.loaded_bytes(CUDA),
        rows=0,
        graphs=0,
        voices=0,
        page=29_000_000,
        row_pages=16,
    )
    pages = needs.pages_in(gpu_memory.budget_bytes(None, CUDA), rows=4096)
    assert pages * needs.page + (900_000_000 - loaded) <= free - loaded


def test_pain_11_a_limit_of_gpu_memory_counts_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit set by the user covers weights, CUDA context and libraries."""
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2 * GB)
    assert gpu_memory.budget_bytes(6.0, CUDA) == 6 * GB
    assert gpu_memory.loaded_bytes(CUDA) >= 2 * GB + 1_400_000_000
