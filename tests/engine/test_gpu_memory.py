"""The memory plan of a GPU, with simulated memory."""

from collections.abc import Callable

import pytest
import torch

from testbed.engine_driving import load
from voiceagent_tts.engine import gpu_memory, make_runner
from voiceagent_tts.engine.gpu_memory import GpuMemory, MemoryNeeds
from voiceagent_tts.engine.sizes import exact_sizes
from voiceagent_tts.errors import VoiceAgentError

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
        weights=gpu_memory.loaded_bytes(GpuMemory(CUDA)),
        rows=0,
        graphs=0,
        voices=0,
        page=29_000_000,
        row_pages=16,
    )
    pages = needs.pages_in(gpu_memory.budget_bytes(None, CUDA, 1), rows=4096)
    assert pages * needs.page + (900_000_000 - loaded) <= free - loaded


def test_pain_11_a_limit_of_gpu_memory_counts_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit set by the user covers weights, CUDA context and libraries."""
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2 * GB)
    assert gpu_memory.budget_bytes(6.0, CUDA, 3) == 6 * GB
    assert gpu_memory.loaded_bytes(GpuMemory(CUDA)) >= 2 * GB + 1_400_000_000


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("is_together", [False, True])
def test_workers_that_share_a_gpu_plan_no_more_than_it_has(
    workers: int, is_together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    total, taken = 80 * GB, 0
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    budgets: list[int] = []
    for _ in range(workers):
        seen = 0 if is_together else taken
        monkeypatch.setattr(
            torch.cuda, "mem_get_info", lambda device, seen=seen: (total - seen, total)
        )
        budgets.append(gpu_memory.budget_bytes(None, CUDA, workers))
        taken += budgets[-1]
    assert len(set(budgets)) == 1
    assert 0.85 * total < taken <= 0.9 * total


def test_the_error_of_a_shared_gpu_names_how_many_share_it() -> None:
    needs = MemoryNeeds(4 * GB, 0, GB, 0, page=29_000_000, row_pages=16)
    share = 24 * GB // 5
    with pytest.raises(VoiceAgentError) as refused, make_runner._naming_shares(5):
        needs.pages_in(share, rows=1)
    assert refused.value.message.startswith(
        "4.80 GB of GPU memory are too little: weights need 4.00"
    )
    assert "5 workers share this GPU, so serve fewer models" in refused.value.message


class _Counted(GpuMemory):
    """Memory in which a runner takes `taken` bytes."""

    def __init__(self, taken: int) -> None:
        self._readings = iter((2 * GB, 2 * GB + taken, 2 * GB))

    def allocated(self) -> int:
        return next(self._readings)

    def peak(self, run: Callable[[], None]) -> int:
        return 0

    def release(self) -> None:
        pass


def test_all_that_a_runner_takes_is_planned() -> None:
    """Beside the pages of rows there is one more, which pads batches."""
    parts, taken = load(), GB
    needs = gpu_memory.measure_needs(
        _Counted(taken), *parts, 2, 512, exact_sizes(2, 512), 0, has_graphs=False
    )
    assert needs.rows + needs.row_pages * needs.page == taken
