"""Loads an engine: reads a checkpoint, chooses precision and kernels, and captures graphs."""

import contextlib
import logging
import math
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from rich.console import Console
from rich.progress import Progress

from voiceagent_tts.engine.engine import Qwen3Engine
from voiceagent_tts.engine.gpu_memory import budget_bytes, measure_needs
from voiceagent_tts.engine.kv_cache import MemoryNeeds, rows_that_fit
from voiceagent_tts.engine.product_choice import (
    Precision,
    choose_codec_products,
    choose_products,
)
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.scheduler import Pace
from voiceagent_tts.engine.sizes import Sizes, exact_sizes, fixed_sizes, graph_sizes
from voiceagent_tts.engine.voice_cache import VoiceCache
from voiceagent_tts.engine.warm_up import measure_costs
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.hub import find_model, fingerprint
from voiceagent_tts.model.attention import AttentionBackend, make_attention
from voiceagent_tts.model.checkpoint import Checkpoint, find_device, load_checkpoint
from voiceagent_tts.model.codec import Codec, load_codec
from voiceagent_tts.model.config import ModelConfig, read_model_config
from voiceagent_tts.model.kernels import find_codec_fault, find_fault
from voiceagent_tts.model.layers import Kernels
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.quantized import Quantization, quantize
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.voices import VoiceFolder

_MAX_LOAD = 0.9
_CPU_ROWS = 8
_CPU_PREFIX_BYTES = 2**30
_PREFIX_SHARE = 0.05
"""Share of the GPU memory budget for computed beginnings of prompts."""

_logger = logging.getLogger(__name__)

KernelChoice = Literal["auto", "plain", "fused", "skinny"]


@dataclass(frozen=True, slots=True)
class Qwen3Options:
    """Settings of an engine: the model, the device, and their limits.

    Attributes:
        model: folder of a model, or the id of a downloaded model.
        device: `cpu`, `cuda` or `cuda:N`. Default: a GPU if there is one.
        precision: data type of talker and code predictor. Default: bfloat16 on a GPU, float16 on a
            GPU without bfloat16, float32 on a CPU. On a CPU also `int8` and `int4`, whose layers
            have weights of at most that many bits, and `auto`, the fastest of float32, bfloat16 and
            int8 for every product; on a GPU `auto` is the default.
        rows: maximum number of contexts at a time. Default: 8 on a CPU; on a GPU, the number of
            rows that have memory for a minute each, at most 64.
        capacity: positions of a row: its prompt and its frames, 12.5 per second.
        gpu_memory_gb: maximum GPU memory of the process, in 10^9 bytes. Default: 90 % of the free
            memory.
        beside_bytes: GPU memory that other work of this process needs at times, in addition to what
            it holds when the engine is loaded.
        codec_device: another GPU for the codec. Default: `device`.
        attention: `sdpa` or `flash`. Default: flash-attn if it is installed and supported.
        kernels: kernels between the matrix products; `auto` uses fused kernels if they work.
        codec_kernels: kernels of the codec; `fused` has half of the memory traffic, and rounds sums
            elsewhere. Never run on a GPU.
        has_graphs: whether passes are captured as CUDA graphs on a GPU.
        quantize: 8-bit weights for talker and code predictor on a GPU. Default: none.
        has_tf32: whether a GPU may compute float32 products in TF32. Default: only if `precision`
            is not float32.
        is_deterministic: whether every call has one size, so that a seed gives identical bits
            whatever else runs.
        voices: folder of cloned voices, for Base models.
        initial_frames: as in `Pace`.
        ramp: as in `Pace`.
        max_load: as in `Pace`. Default: 0.9 on a GPU; infinite on a CPU, whose speed depends on
            other processes.
        threads: number of CPU threads. Default: PyTorch's choice. Workers on one machine should
            divide its cores among them, because threads that wait for each other slow all workers
            down.
    """

    model: str
    device: str | None = None
    precision: Precision | None = None
    rows: int | None = None
    capacity: int = 4096
    gpu_memory_gb: float | None = None
    beside_bytes: int = 0
    codec_device: str | None = None
    attention: AttentionBackend | None = None
    kernels: KernelChoice = "auto"
    codec_kernels: Literal["plain", "fused"] = "plain"
    has_graphs: bool = True
    quantize: Quantization | None = None
    has_tf32: bool | None = None
    is_deterministic: bool = False
    voices: str | None = None
    initial_frames: int = 1
    ramp: Collection[int] = (1, 2, 4, 8, 12)
    max_load: float | None = None
    threads: int | None = None


class ModelSource(Protocol):
    """Source of a model: files in a folder, or weights that were made in memory."""

    @property
    def name(self) -> str:
        """Name for logs and reports."""
        ...

    @property
    def config(self) -> ModelConfig:
        """Configuration of talker and code predictor."""
        ...

    def checkpoint(
        self,
        dtype: torch.dtype,
        device: torch.device,
        backend: AttentionBackend,
        *,
        kernels: Kernels,
        is_packed: bool,
    ) -> Checkpoint:
        """Load talker and code predictor; arguments as of `load_checkpoint`."""
        ...

    def codec(self, device: torch.device, *, is_packed: bool = True) -> Codec:
        """Load the codec's decoder in float32; arguments as of `load_codec`."""
        ...


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A model in a folder, as published.

    Attributes:
        folder: folder of the model, with its codec.
    """

    folder: Path

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name

    @property
    def config(self) -> ModelConfig:
        """Contents of config.json."""
        return read_model_config(self.folder)

    def checkpoint(
        self,
        dtype: torch.dtype,
        device: torch.device,
        backend: AttentionBackend,
        *,
        kernels: Kernels,
        is_packed: bool,
    ) -> Checkpoint:
        """Read the weights from safetensors files."""
        return load_checkpoint(
            self.folder, dtype, device, backend, kernels=kernels, is_packed=is_packed
        )

    def codec(self, device: torch.device, *, is_packed: bool = True) -> Codec:
        """Read the codec that the folder contains."""
        return load_codec(self.folder, torch.float32, device, is_packed=is_packed)


def load_engine(options: Qwen3Options, inbox: Inbox, outbox: Outbox) -> Qwen3Engine:
    """Load the model and its codec, and compile what a GPU runs.

    Raises:
        CheckpointError: a file is missing, incomplete, or not supported by this network.
        VoiceAgentError: the memory is too small, or an option asks for something that this machine
            does not have.
    """
    folder = find_model(options.model)
    checkpoint, runner = load_runner(options)
    folder_of_clones = VoiceFolder(Path(options.voices)) if options.voices else None
    voices = VoiceCache(checkpoint.config, folder_of_clones)
    is_cpu = checkpoint.network.device.type == "cpu"
    max_load = options.max_load or (math.inf if is_cpu else _MAX_LOAD)
    pace = Pace(options.initial_frames, tuple(options.ramp), max_load)
    bits = f"{options.precision} {options.quantize} {checkpoint.network.device.type}"
    checkpoint = replace(checkpoint, revision=f"{fingerprint(folder)} {bits}")
    return Qwen3Engine(inbox, outbox, checkpoint, runner, voices, folder.name, pace)


def load_runner(
    options: Qwen3Options, source: ModelSource | None = None
) -> tuple[Checkpoint, Runner]:
    """Load a model's rows without an engine around them, for a caller that drives them itself.

    Args:
        options: what to load and where.
        source: replaces the files of `options.model`.

    Raises:
        CheckpointError: as in `load_engine`.
        VoiceAgentError: as in `load_engine`.
    """
    device = find_device(options.device)
    _check_bits(options, device)
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)  # a device without a number is refused there
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    source = source or FolderSource(find_model(options.model))
    codec_device = _codec_device(options, device)
    dtype = _choose_dtype(options, device)
    kernels, kernel_fault = _choose_kernels(options.kernels, source.config, dtype, device)
    checkpoint = _load_network(source, options, dtype, device, kernels)
    runner = _make_runner(checkpoint, _load_codec(source, options, codec_device), options)
    runner.kernel_fault = kernel_fault
    return checkpoint, runner


def _codec_device(options: Qwen3Options, device: torch.device) -> torch.device:
    codec_device = torch.device(options.codec_device or device)
    if codec_device.type != device.type:
        raise VoiceAgentError(
            f"expected codec_device to be another GPU, got {codec_device} beside a model on "
            f"{device}; leave it out to run the codec on {device}",
            code=ErrorCode.INVALID_PARAM,
        )
    return codec_device


def _check_bits(options: Qwen3Options, device: torch.device) -> None:
    """Refuse the 8 and 4 bits of one kind of device on the other, and those that kernels lack.

    Raises:
        VoiceAgentError: as described.
    """
    if device.type == "cpu" and options.quantize is not None:
        got, other = f"quantize {options.quantize} on a CPU", "precision int8"
    elif device.type != "cpu" and options.precision in ("int8", "int4"):
        got, other = f"precision {options.precision} on a GPU", "quantize int8"
    elif options.kernels == "skinny" and options.quantize is not None:
        got, other = f"quantize {options.quantize} with kernels skinny", "kernels fused"
    else:
        return
    raise VoiceAgentError(
        f"expected a precision for {device}, got {got}; try {other}", code=ErrorCode.INVALID_PARAM
    )


def _choose_dtype(options: Qwen3Options, device: torch.device) -> torch.dtype:
    precision = options.precision
    if precision not in ("float32", "bfloat16", "float16"):
        precision = _best_precision(device)
    has_tf32 = precision != "float32" if options.has_tf32 is None else options.has_tf32
    _allow_tf32(is_allowed=has_tf32)
    return getattr(torch, precision)


def _load_network(
    source: ModelSource,
    options: Qwen3Options,
    dtype: torch.dtype,
    device: torch.device,
    kernels: Kernels,
) -> Checkpoint:
    checkpoint = source.checkpoint(
        dtype,
        device,
        options.attention or _best_attention(device, dtype),
        kernels=kernels,
        is_packed=False,
    )
    precision = str(dtype).removeprefix("torch.")
    _logger.info("%s runs on %s in %s, with %s kernels", source.name, device, precision, kernels)
    if device.type == "cpu":
        _choose_products(checkpoint.network, options)
    if options.quantize is not None:
        saved = quantize(checkpoint.network, options.quantize)
        _logger.info("%s weights save %.2f GB", options.quantize, saved / 1e9)
    return checkpoint


def _load_codec(source: ModelSource, options: Qwen3Options, device: torch.device) -> Codec:
    if options.codec_kernels == "fused":
        return _load_fused_codec(source, device)
    if device.type != "cpu" or options.precision not in ("int8", "int4", "auto"):
        return source.codec(device)
    codec = source.codec(device, is_packed=False)
    timing = choose_codec_products(codec.decoder, is_timed=not options.is_deterministic)
    _logger.info("measuring products of the codec took %.1f s", timing.measured_s)
    return codec


def _load_fused_codec(source: ModelSource, device: torch.device) -> Codec:
    """Load the codec with fused activations.

    Raises:
        VoiceAgentError: they do not work on this device.
    """
    if fault := find_codec_fault(device):
        raise VoiceAgentError(
            f"expected codec_kernels that work on {device}, got fused: {fault}; try plain",
            code=ErrorCode.INVALID_PARAM,
        )
    codec = source.codec(device)
    codec.decoder.fuse()
    _logger.info("the codec runs with fused activations")
    return codec


def _choose_products(network: Network, options: Qwen3Options) -> None:
    """Replace the linear layers by the fastest that the precision allows on this CPU."""
    precision = options.precision or "float32"
    rows = options.rows or _CPU_ROWS
    products = choose_products(network, precision, rows, is_timed=not options.is_deterministic)
    products.apply(network)
    took_s = products.timing.measured_s
    _logger.info("products in %s: %s; measuring took %.1f s", precision, products, took_s)


def _best_precision(device: torch.device) -> Literal["float32", "bfloat16", "float16"]:
    if device.type == "cpu":
        return "float32"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return "bfloat16"
    _logger.warning(
        "this GPU does not support bfloat16; talker and code predictor compute in float16"
    )
    return "float16"


def _best_attention(device: torch.device, dtype: torch.dtype) -> AttentionBackend:
    """Return `flash` if flash-attn can be loaded and used, otherwise `sdpa`."""
    if device.type == "cuda":
        with contextlib.suppress(ValueError):
            make_attention("flash", dtype)
            return "flash"
    return "sdpa"


def _choose_kernels(
    wanted: KernelChoice, config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> tuple[Kernels, str | None]:
    """Choose fused kernels if they are wanted and compute correctly on this device.

    Returns:
        The kernels, and why they are plain although fused kernels were wanted.

    Raises:
        VoiceAgentError: kernels were named, and they do not work.
    """
    if wanted == "plain" or (wanted == "auto" and device.type == "cpu"):
        return "plain", None
    kernels: Kernels = "fused" if wanted == "auto" else wanted
    fault = find_fault(config.talker_config, dtype, device, kernels)
    if fault is None:
        return kernels, None
    if wanted != "auto":
        raise VoiceAgentError(
            f"expected kernels that work on {device}, got {wanted}: {fault}; try auto or plain",
            code=ErrorCode.INVALID_PARAM,
        )
    _logger.warning(
        "using plain kernels, which are slower, because fused kernels failed: %s", fault
    )
    return "plain", fault


def _allow_tf32(*, is_allowed: bool) -> None:
    """Allow or forbid TF32 through both of PyTorch's interfaces.

    The newer one alone leaves the older one's getters raising (torch 2.11 and 2.13), and Inductor
    and TunableOp read those. The older one alone leaves cuDNN's precision unnamed.
    """
    precision = "tf32" if is_allowed else "ieee"
    torch.backends.cuda.matmul.allow_tf32 = is_allowed
    torch.backends.cudnn.allow_tf32 = is_allowed
    cudnn: Any = torch.backends.cudnn  # its stubs lack the newer interface
    for backend in (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn):
        backend.fp32_precision = precision


def _make_runner(checkpoint: Checkpoint, codec: Codec, options: Qwen3Options) -> Runner:
    is_cpu = checkpoint.network.device.type == "cpu"
    return (_make_cpu_runner if is_cpu else _make_gpu_runner)(checkpoint, codec, options)


def _make_cpu_runner(checkpoint: Checkpoint, codec: Codec, options: Qwen3Options) -> Runner:
    rows = options.rows or _CPU_ROWS
    sizes = fixed_sizes if options.is_deterministic else exact_sizes
    runner = Runner(
        checkpoint,
        codec,
        rows,
        options.capacity,
        sizes=sizes(rows, options.capacity),
        has_graphs=options.has_graphs,
        prefix_bytes=_CPU_PREFIX_BYTES,
    )
    _try_capture(runner)
    return runner


def _make_gpu_runner(checkpoint: Checkpoint, codec: Codec, options: Qwen3Options) -> Runner:
    """Choose rows and pages for the memory budget, capture graphs, and measure step costs."""
    device = checkpoint.network.device
    budget = budget_bytes(options.gpu_memory_gb, device)
    prefix_bytes = int(_PREFIX_SHARE * budget)

    def needs_of(rows: int) -> MemoryNeeds:
        return measure_needs(
            checkpoint,
            codec,
            rows,
            options.capacity,
            _gpu_sizes(checkpoint, options, rows),
            prefix_bytes,
            options.beside_bytes,
            has_graphs=options.has_graphs,
        )

    if options.rows is None:
        rows, needs = rows_that_fit(needs_of, budget)
        _logger.info("the GPU has memory for %d rows of a minute each", rows)
    else:
        rows, needs = options.rows, needs_of(options.rows)
    runner = Runner(
        checkpoint,
        codec,
        rows,
        options.capacity,
        pages=needs.pages_in(budget, rows),
        sizes=_gpu_sizes(checkpoint, options, rows),
        has_graphs=options.has_graphs,
        prefix_bytes=prefix_bytes,
    )
    _capture_on_gpu(runner, needs, device)
    runner.costs = measure_costs(runner, checkpoint.generation)
    return runner


def _gpu_sizes(checkpoint: Checkpoint, options: Qwen3Options, rows: int) -> Sizes:
    if options.is_deterministic:
        return fixed_sizes(rows, options.capacity)
    has_windows = checkpoint.network.kernels == "plain"
    return graph_sizes(rows, options.capacity, has_windows=has_windows)


def _capture_on_gpu(runner: Runner, needs: MemoryNeeds, device: torch.device) -> None:
    """Capture graphs, and measure and log their memory."""
    before, _ = torch.cuda.mem_get_info(device)
    _try_capture(runner)
    if runner.has_graphs:
        runner.graph_bytes = before - torch.cuda.mem_get_info(device)[0]
    _logger.info(
        "graphs use %.2f GB of the %.2f GB reserved for them; %d KV pages of %.1f MB",
        runner.graph_bytes / 1e9,
        needs.graphs / 1e9,
        runner.pages,
        needs.page / 1e6,
    )


def _try_capture(runner: Runner) -> None:
    """Capture all graphs, with a progress bar; if that fails, run without graphs.

    An engine without graphs is slower, but it still serves, and its benchmarks still have results.
    """
    if not runner.has_graphs:
        return
    began_s = time.perf_counter()
    try:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("capturing graphs", total=runner.calls)
            runner.capture(lambda done, total: progress.update(task, completed=done, total=total))
    except Exception as error:  # raised by a driver, a library or a kernel, each with its own types
        fault = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        _logger.warning(
            "running without CUDA graphs, which is slower, because a capture failed: %s",
            fault,
            exc_info=True,
        )
    else:
        _logger.info("captured %d graphs in %.1f s", runner.calls, time.perf_counter() - began_s)
        return
    # Not in the handler, because its traceback keeps the tensors of the failed capture alive.
    runner.run_without_graphs(fault)
