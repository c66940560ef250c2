"""Makes the runner of a loaded model: as many rows and pages as fit, and captured graphs.

On a GPU its steps are measured before the first context opens. The scheduler starts one row per
step while it does not know what steps and starts cost: without these measurements 64 contexts that
open together on a cold engine wait for 64 steps.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from rich.console import Console
from rich.progress import Progress

from voiceagent_tts.core import FRAME_S
from voiceagent_tts.engine.gpu_memory import (
    GpuMemory,
    MemoryNeeds,
    budget_bytes,
    measure_needs,
    rows_that_fit,
)
from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.engine.runner import Runner, StepCost
from voiceagent_tts.engine.sizes import Sizes, exact_sizes, fixed_sizes, graph_sizes
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.codec import Codec
from voiceagent_tts.model.config import GenerationConfig
from voiceagent_tts.model.prompt import NO_CODEC, Prompt
from voiceagent_tts.model.sampling import sampling_params

CPU_ROWS = 8
"""Rows on a CPU, unless the options say otherwise."""
_CPU_PREFIX_BYTES = 2**30
PREFIX_SHARE = 0.05
"""Share of the GPU memory budget for computed beginnings of prompts."""
_PROMPT_POSITIONS = 32
"""Of the warm-up: short enough that the prompt and the frames that follow fit into one page."""
_STEPS = 3

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
    if runner.has_graphs:
        _capture(runner)
    return runner


def _make_gpu_runner(checkpoint: Checkpoint, codec: Codec, options: Qwen3Options) -> Runner:
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
    before, _ = torch.cuda.mem_get_info(device)
    _capture(runner)
    if runner.has_graphs:
        runner.graph_bytes = before - torch.cuda.mem_get_info(device)[0]
    _logger.info(
        "graphs use %.2f GB of the %.2f GB reserved for them; %d KV pages of %.1f MB",
        runner.graph_bytes / 1e9,
        needs.graphs / 1e9,
        runner.pages,
        needs.page / 1e6,
    )


def _capture(runner: Runner) -> None:
    began_s = time.perf_counter()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("capturing graphs", total=runner.graph_count)
        runner.capture(lambda done, total: progress.update(task, completed=done, total=total))
    kind = "graphs" if runner.has_graphs else "passes without graphs"
    _logger.info("%d %s took %.1f s", runner.graph_count, kind, time.perf_counter() - began_s)


def measure_costs(runner: Runner, generation: GenerationConfig) -> tuple[StepCost, ...]:
    """Start and step few, half and all rows, free them again, and log how long steps took.

    Returns:
        Steps without starts first, because the cost of a start is estimated from the difference.
    """
    most = min(runner.max_rows, runner.pages)
    counts = sorted({1, (most + 1) // 2, most})
    for count in counts:  # the first replay uploads its graph, and libraries load what they need
        list(_step_rows(runner, generation, count))
    costs = [cost for count in counts for cost in _step_rows(runner, generation, count)]
    runner.reset_timings()
    steps = {cost.rows: f"{cost.seconds * 1000:.1f} ms with {cost.rows}" for cost in costs}
    _logger.info("frames of %.0f ms take %s rows", FRAME_S * 1000, ", ".join(steps.values()))
    return tuple(sorted(costs, key=lambda cost: cost.starts))


def _step_rows(runner: Runner, generation: GenerationConfig, count: int) -> Iterator[StepCost]:
    rows = runner.batch.free[:count]
    # Text without end keeps every row alive, whatever the model samples.
    endless_text = (0,) * (_STEPS + 2)
    prompt = Prompt((0,) * _PROMPT_POSITIONS, (NO_CODEC,) * _PROMPT_POSITIONS, endless_text)
    try:
        for number in range(1 + _STEPS):
            began_s = time.perf_counter()
            for row in () if number else rows:
                sampling = sampling_params(generation, seed=row)
                runner.start(row, prompt, sampling, _STEPS + 2, is_open=True, pages=[row + 1])
            runner.step(rows, dict.fromkeys(rows, 1))
            yield StepCost(count, 0 if number else count, time.perf_counter() - began_s)
    finally:
        while runner.has_sound_in_flight:
            runner.step([], {})
        for row in rows:
            runner.cancel(row)
