"""The memory plan of a GPU, with its memory simulated."""

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
    """What cuBLAS, cuDNN and kernels load fits beside all pages, loaded before or after the plan.

    They take up to 0.9 GB of a GPU beside the context of the process.
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


def test_a_limit_counts_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a limit that the user sets, weights, context and libraries are all counted."""
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2 * GB)
    assert gpu_memory.budget_bytes(6.0, CUDA) == 6 * GB
    assert gpu_memory.loaded_bytes(CUDA) >= 2 * GB + 1_400_000_000
