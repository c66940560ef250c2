"""Makes the runner of a loaded model: as many rows and pages as fit, and captured graphs."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from rich.console import Console
from rich.progress import Progress

from voiceagent_tts.engine.gpu_memory import GpuMemory, budget_bytes, measure_needs
from voiceagent_tts.engine.kv_cache import MemoryNeeds, rows_that_fit
from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import Sizes, exact_sizes, fixed_sizes, graph_sizes
from voiceagent_tts.engine.warm_up import measure_costs
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.codec import Codec

CPU_ROWS = 8
"""Rows on a CPU, unless the options say otherwise."""
_CPU_PREFIX_BYTES = 2**30
PREFIX_SHARE = 0.05
"""Share of the GPU memory budget for computed beginnings of prompts."""

_logger = logging.getLogger(__name__)


def make_runner(checkpoint: Checkpoint, codec: Codec, options: Qwen3Options) -> Runner:
    """Make the rows of a loaded model, and capture its graphs.

    Raises:
        VoiceAgentError: the GPU has too little memory.
    """
    is_cpu = checkpoint.network.device.type == "cpu"
    return (_make_cpu_runner if is_cpu else _make_gpu_runner)(checkpoint, codec, options)


def _make_cpu_runner(checkpoint: Checkpoint, codec: Codec, options: Qwen3Options) -> Runner:
    rows = options.rows or CPU_ROWS
    sizes = fixed_sizes if options.is_deterministic else exact_sizes
    runner = Runner(
        checkpoint,
        codec,
        rows,
        options.capacity,
        sizes=sizes(rows, options.capacity),
        has_graphs=options.has_graphs,
        prefix_bytes=0 if options.is_deterministic else _CPU_PREFIX_BYTES,
    )
    if runner.graphs.are_used:
        _capture(runner)
    return runner


def _make_gpu_runner(checkpoint: Checkpoint, codec: Codec, options: Qwen3Options) -> Runner:
    """Choose rows and pages for the memory budget, capture graphs, and measure step costs."""
    device = checkpoint.network.device
    budget = budget_bytes(options.gpu_memory_gb, device, options.sharing)
    memory = GpuMemory(device)
    # Whether a beginning was computed ahead depends on the load, and rounds a prompt elsewhere.
    prefix_bytes = 0 if options.is_deterministic else int(PREFIX_SHARE * budget)

    def needs_of(rows: int) -> MemoryNeeds:
        return measure_needs(
            memory,
            checkpoint,
            codec,
            rows,
            options.capacity,
            _gpu_sizes(checkpoint, options, rows),
            prefix_bytes,
            has_graphs=options.has_graphs,
        )

    with _naming_shares(options.sharing):
        if options.rows is None:
            rows, needs = rows_that_fit(needs_of, budget)
            _logger.info("the GPU has memory for %d rows of a minute each", rows)
        else:
            rows, needs = options.rows, needs_of(options.rows)
        pages = needs.pages_in(budget, rows)
    runner = Runner(
        checkpoint,
        codec,
        rows,
        options.capacity,
        pages=pages,
        sizes=_gpu_sizes(checkpoint, options, rows),
        has_graphs=options.has_graphs,
        prefix_bytes=prefix_bytes,
    )
    _capture_on_gpu(runner, needs, device)
    runner.costs = measure_costs(runner, checkpoint.generation)
    return runner


@contextmanager
def _naming_shares(sharing: int) -> Iterator[None]:
    """Say in the error of a memory that is too small that several workers share it."""
    try:
        yield
    except VoiceAgentError as error:
        if sharing == 1:
            raise
        raise VoiceAgentError(
            f"{error.message}; {sharing} workers share this GPU, so serve fewer models or workers "
            "on it, or name more GPUs",
            code=error.code,
        ) from None


def _gpu_sizes(checkpoint: Checkpoint, options: Qwen3Options, rows: int) -> Sizes:
    if options.is_deterministic:
        return fixed_sizes(rows, options.capacity)
    has_windows = checkpoint.network.kernels == "plain"
    return graph_sizes(rows, options.capacity, has_windows=has_windows)


def _capture_on_gpu(runner: Runner, needs: MemoryNeeds, device: torch.device) -> None:
    """Capture graphs, and measure and log their memory."""
    before, _ = torch.cuda.mem_get_info(device)
    _capture(runner)
    if runner.graphs.are_used:
        runner.graphs.bytes = before - torch.cuda.mem_get_info(device)[0]
    _logger.info(
        "graphs use %.2f GB of the %.2f GB reserved for them; %d KV pages of %.1f MB",
        runner.graphs.bytes / 1e9,
        needs.graphs / 1e9,
        runner.pages,
        needs.page / 1e6,
    )


def _capture(runner: Runner) -> None:
    """Capture all graphs, with a progress bar."""
    graphs, began_s = runner.graphs, time.perf_counter()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("capturing graphs", total=graphs.count)
        graphs.capture(lambda done, total: progress.update(task, completed=done, total=total))
    kind = "graphs" if graphs.are_used else "passes without graphs"
    _logger.info("%d %s took %.1f s", graphs.count, kind, time.perf_counter() - began_s)
