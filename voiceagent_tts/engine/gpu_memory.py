"""Measures the GPU memory that an engine needs, and how many rows and KV pages then fit into it."""

import contextlib
import gc
from collections.abc import Callable
from dataclasses import dataclass

import torch

from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import Sizes
from voiceagent_tts.engine.voice_cache import MAX_CLONES
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.codec import Codec
from voiceagent_tts.model.kv_pool import PAGE_POSITIONS, pages_for

CONTEXT_BYTES = 500_000_000
"""Memory of a process's CUDA context, which PyTorch does not count."""
_LIBRARY_BYTES = 900_000_000
"""Memory that cuBLAS, cuDNN and kernels need. They load when they are first used, so that a part of
it is not yet allocated when free memory is read."""
_GRAPH_BYTES = 12_000_000
"""Memory of one graph of several hundred to two thousand launches, without its working memory. On
an H100 55 of them took 0.62 GB, and 40 took 0.46 GB."""
_FREE_SHARE = 0.9
"""Share of the free memory that an engine uses if it has no limit."""
_GB = 1e9
_MOST_ROWS = 64
_MINUTE_PAGES = 4
"""1,024 positions: a prompt and eighty seconds of audio, more than an agent says in one turn."""


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """Memory that an engine needs on a GPU, in bytes unless stated otherwise.

    Attributes:
        weights: weights of talker, code predictor and codec, and the memory of the driver and of
            libraries.
        rows: state of all rows except their KV pages, and the page of the row that pads batches.
        graphs: captured graphs, and the working memory of passes.
        voices: cloned voices and computed beginnings of prompts.
        page: one KV page.
        row_pages: number of KV pages of a row that fills its capacity.
    """

    weights: int
    rows: int
    graphs: int
    voices: int
    page: int
    row_pages: int

    def pages_in(self, budget_bytes: int, rows: int) -> int:
        """Return the number of pages that fit into a budget, at most what all rows can fill.

        Raises:
            VoiceAgentError: not even one row fits.
        """
        pages = self._room(budget_bytes)
        if pages < self.row_pages:
            raise VoiceAgentError(
                f"{budget_bytes / _GB:.2f} GB of GPU memory are too little: weights need "
                f"{self.weights / _GB:.2f}, {rows} rows {self.rows / _GB:.2f}, graphs "
                f"{self.graphs / _GB:.2f}, voices {self.voices / _GB:.2f}, and one row of "
                f"{self.row_pages} pages {self.row_pages * self.page / _GB:.2f}; expected at "
                f"least {(self._beside_pages + self.row_pages * self.page) / _GB:.2f} GB; raise "
                "gpu_memory_gb, or lower rows",
                code=ErrorCode.INVALID_PARAM,
            )
        return min(pages, rows * self.row_pages)

    def has_minutes(self, budget_bytes: int, rows: int) -> bool:
        """Whether all rows together have pages for a minute each, and one row for its capacity."""
        pages = min(_MINUTE_PAGES, self.row_pages)
        return self._room(budget_bytes) >= max(self.row_pages, rows * pages)

    def _room(self, budget_bytes: int) -> int:
        return (budget_bytes - self._beside_pages) // self.page

    @property
    def _beside_pages(self) -> int:
        return self.weights + self.rows + self.graphs + self.voices


def rows_that_fit(
    needs_of: Callable[[int], MemoryNeeds], budget_bytes: int
) -> tuple[int, MemoryNeeds]:
    """Return how many rows, at most 64, have memory for a minute each, or else 1, and the needs.

    `needs_of` returns the needs of a number of rows, or raises VoiceAgentError if the memory does
    not suffice to run their passes.

    Raises:
        VoiceAgentError: the passes of a single row cannot be run.
    """
    rows = _MOST_ROWS
    while rows > 1:
        with contextlib.suppress(VoiceAgentError):
            needs = needs_of(rows)
            if needs.has_minutes(budget_bytes, rows):
                return rows, needs
        rows //= 2
    return rows, needs_of(rows)


class GpuMemory:
    """The memory of a GPU, in PyTorch's allocator; tests count it otherwise."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def allocated(self) -> int:
        """Return the bytes of all tensors."""
        return torch.cuda.memory_allocated(self._device)

    def peak(self, run: Callable[[], None]) -> int:
        """Return the highest number of bytes that `run` adds while it runs."""
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        before = self.allocated()
        run()
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - before

    def release(self) -> None:
        """Release the memory of tensors that nothing refers to."""
        gc.collect()
        torch.cuda.empty_cache()


def measure_needs(
    memory: GpuMemory,
    checkpoint: Checkpoint,
    codec: Codec,
    rows: int,
    capacity: int,
    sizes: Sizes,
    prefix_bytes: int,
    *,
    has_graphs: bool,
) -> MemoryNeeds:
    """Measure the memory needs of a loaded model by running its largest passes once.

    Raises:
        VoiceAgentError: the memory does not suffice to run the passes.
    """
    memory.release()  # of an earlier attempt with more rows
    weights = memory.allocated()
    row_pages = pages_for(capacity)
    try:
        runner = Runner(checkpoint, codec, rows, capacity, pages=row_pages, sizes=sizes)
        page = runner.batch.prefix_bytes(PAGE_POSITIONS)
        beside_weights = memory.allocated() - weights
        largest = runner.run_largest_passes, runner.run_largest_call
        passes = sum(memory.peak(run) for run in largest)
    except torch.cuda.OutOfMemoryError as error:
        raise VoiceAgentError(
            f"expected rows whose passes fit into this GPU, got {rows}; try fewer: {error}",
            code=ErrorCode.INVALID_PARAM,
        ) from error
    count = runner.graph_count if has_graphs else 0
    clones = MAX_CLONES if checkpoint.config.has_speaker_encoder else 0
    voices = clones * runner.codec_row_bytes + prefix_bytes
    del runner, largest
    memory.release()
    return MemoryNeeds(
        # Libraries keep the memory that they allocated for the streams of this runner.
        weights=loaded_bytes(memory),
        rows=beside_weights - row_pages * page,  # one more page pads batches
        graphs=passes + count * _GRAPH_BYTES,
        voices=voices,
        page=page,
        row_pages=row_pages,
    )


def loaded_bytes(memory: GpuMemory) -> int:
    """Return the maximum memory of weights, the CUDA context and libraries on a GPU."""
    return memory.allocated() + CONTEXT_BYTES + _LIBRARY_BYTES


def budget_bytes(gpu_memory_gb: float | None, device: torch.device, sharing: int) -> int:
    """Return the GPU memory that a process may use: its limit, or its part of the free memory.

    `sharing` processes share the GPU in equal parts. They start together, so that the free memory
    does not tell what the others will take. The CUDA context exists already and is not part of the
    free memory. Libraries may not be loaded yet, so they are not added.
    """
    if gpu_memory_gb is not None:
        return int(gpu_memory_gb * 1e9)
    free, total = torch.cuda.mem_get_info(device)
    budget = int(_FREE_SHARE * free) + torch.cuda.memory_reserved(device) + CONTEXT_BYTES
    return budget if sharing == 1 else min(budget, int(_FREE_SHARE * total) // sharing)
