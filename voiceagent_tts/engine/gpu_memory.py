"""How many pages a GPU has room for: weights are counted, passes are run once and measured.

Knows no commands and no rows' contents.
"""

import gc
from collections.abc import Callable

import torch

from voiceagent_tts.engine.kv_cache import MemoryNeeds
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import Sizes
from voiceagent_tts.engine.voice_cache import MAX_CLONES
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.codec import Codec
from voiceagent_tts.model.kv_pool import pages_for

_CONTEXT_BYTES = 500_000_000
"""The context of a process on the GPU, which PyTorch does not count."""
_LIBRARY_BYTES = 900_000_000
"""What cuBLAS, cuDNN and kernels load beside the context. They do it when they are first used, so
that a part of it is still to come when free memory is read."""
_GRAPH_BYTES = 6_000_000
"""Of one graph, beside what its passes compute in: some hundreds to two thousand launches."""
_FREE_SHARE = 0.9
"""Without a limit, so much of what is free is taken."""


def measure_needs(
    checkpoint: Checkpoint,
    codec: Codec,
    rows: int,
    capacity: int,
    sizes: Sizes,
    prefix_bytes: int,
    *,
    has_graphs: bool,
) -> MemoryNeeds:
    """What the GPU of a loaded model must hold, found by running its largest passes once.

    The codec counts where it shares the GPU.

    Raises:
        VoiceAgentError: they cannot even be run.
    """
    device = checkpoint.network.device
    _release()  # what an attempt with more rows held
    weights = torch.cuda.memory_allocated(device)
    row_pages = pages_for(capacity)
    try:
        runner = Runner(checkpoint, codec, rows, capacity, pages=row_pages, sizes=sizes)
        page = runner.page_bytes
        beside_weights = torch.cuda.memory_allocated(device) - weights
        largest = runner.run_largest_passes, runner.run_largest_call
        passes = sum(_peak(run, device) for run in largest)
    except torch.cuda.OutOfMemoryError as error:
        raise VoiceAgentError(
            f"rows is {rows}, whose passes do not fit into this GPU; expected fewer: {error}",
            code=ErrorCode.INVALID_PARAM,
        ) from error
    count = runner.calls if has_graphs else 0
    clones = MAX_CLONES if checkpoint.config.has_speaker_encoder else 0
    voices = clones * runner.codec_row_bytes + prefix_bytes
    del runner, largest
    _release()
    return MemoryNeeds(
        # What libraries took for the streams of this runner stays with them.
        weights=loaded_bytes(device),
        rows=beside_weights - (row_pages + 1) * page,
        graphs=passes + count * _GRAPH_BYTES,
        voices=voices,
        page=page,
        row_pages=row_pages,
    )


def loaded_bytes(device: torch.device) -> int:
    """What weights, the process's context and libraries take of a GPU, at most."""
    return torch.cuda.memory_allocated(device) + _CONTEXT_BYTES + _LIBRARY_BYTES


def budget_bytes(gpu_memory_gb: float | None, device: torch.device) -> int:
    """What a process may take of a GPU: what it was told, else most of what is free."""
    if gpu_memory_gb is not None:
        return int(gpu_memory_gb * 1e9)
    free, _ = torch.cuda.mem_get_info(device)
    # The context is there and no longer free; of the libraries, which may not be, nothing counts.
    return int(_FREE_SHARE * free) + torch.cuda.memory_reserved(device) + _CONTEXT_BYTES


def _release() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def _peak(run: Callable[[], None], device: torch.device) -> int:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before
