"""Loads an engine: reads the model, makes its runner, and builds the engine around it."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.engine.device_choice import (
    accept_fault,
    check_bits,
    choose_attention,
    choose_dtype,
    choose_kernels,
    replace_codec_products,
    replace_products,
    set_tf32,
)
from voiceagent_tts.engine.engine import Qwen3Engine
from voiceagent_tts.engine.make_runner import make_runner
from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import WINDOWS_FRAMES
from voiceagent_tts.engine.voice_cache import VoiceCache
from voiceagent_tts.hub import find_model, fingerprint
from voiceagent_tts.model.attention import AttentionBackend
from voiceagent_tts.model.checkpoint import Checkpoint, find_device, load_checkpoint
from voiceagent_tts.model.codec import Codec, load_codec
from voiceagent_tts.model.config import ModelConfig, read_model_config
from voiceagent_tts.model.kernels import fuse_codec
from voiceagent_tts.model.layers import Kernels
from voiceagent_tts.model.products import pack
from voiceagent_tts.seam.engine import Inbox, Outbox

_MAX_LOAD = 0.9
"""Of a GPU; the speed of a CPU depends on other processes."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model comes from: files in a folder, or weights that were made in memory.

    Attributes:
        name: for logs and reports.
        config: configuration of talker and code predictor.
        checkpoint: loads these in a precision, to a device, for kernels; nothing is packed.
        codec: loads the codec's decoder to a device; nothing is packed.
    """

    name: str
    config: ModelConfig
    checkpoint: Callable[[torch.dtype, torch.device, AttentionBackend, Kernels], Checkpoint]
    codec: Callable[[torch.device], Codec]


def folder_source(folder: Path) -> ModelSource:
    """Return a model in a folder, with its codec, as published."""

    def checkpoint(
        dtype: torch.dtype, device: torch.device, backend: AttentionBackend, kernels: Kernels
    ) -> Checkpoint:
        return load_checkpoint(folder, dtype, device, backend, kernels=kernels, is_packed=False)

    def codec(device: torch.device) -> Codec:
        return load_codec(folder, device=device, is_packed=False)

    return ModelSource(folder.name, read_model_config(folder), checkpoint, codec)


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
    max_load = math.inf if is_cpu else _MAX_LOAD
    bits = f"{options.precision} {checkpoint.network.device.type}"
    checkpoint = replace(checkpoint, revision=f"{fingerprint(folder)} {bits}")
    return Qwen3Engine(inbox, outbox, checkpoint, runner, voices, folder.name, max_load)


def load_runner(
    options: Qwen3Options, source: ModelSource | None = None
) -> tuple[Checkpoint, Runner]:
    """Load a model's rows without an engine around them, for a caller that drives them itself.

    `source` replaces the files of `options.model`. Raises as `load_engine`.
    """
    device = find_device(options.device)
    check_bits(options, device)
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)  # a device without a number is refused there
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    source = source or folder_source(find_model(options.model))
    dtype = choose_dtype(options, device)
    set_tf32(dtype)
    kernels, kernel_fault = choose_kernels(options.kernels, source.config, dtype, device)
    checkpoint = _load_network(source, options, dtype, device, kernels)
    codec, codec_fault = _load_codec(source, options, device)
    runner = make_runner(checkpoint, codec, options)
    runner.kernel_fault, runner.codec_fault = kernel_fault, codec_fault
    return checkpoint, runner


def _load_network(
    source: ModelSource,
    options: Qwen3Options,
    dtype: torch.dtype,
    device: torch.device,
    kernels: Kernels,
) -> Checkpoint:
    backend = choose_attention(options, kernels, dtype, device)
    checkpoint = source.checkpoint(dtype, device, backend, kernels)
    precision = str(dtype).removeprefix("torch.")
    _logger.info("%s runs on %s in %s, with %s kernels", source.name, device, precision, kernels)
    if device.type == "cpu":
        products = replace_products(checkpoint.network, options.precision or "float32")
        _logger.info("kernels of its products: %s", dict(products))
    return checkpoint


def _load_codec(
    source: ModelSource, options: Qwen3Options, device: torch.device
) -> tuple[Codec, str | None]:
    """Load the codec with the kernels of the options.

    Returns:
        The codec, and why its kernels are plain although fused ones were wanted.
    """
    wanted = options.codec_kernels
    if wanted == "plain" or (wanted == "auto" and device.type == "cpu"):
        return _load_plain_codec(source, options, device), None
    codec = source.codec(device)
    fault = fuse_codec(codec.decoder, max(WINDOWS_FRAMES))
    if fault is None:
        _logger.info("the codec runs with fused kernels")
        return codec, None
    accept_fault(fault, "codec_kernels", wanted, device)
    return _load_plain_codec(source, options, device), fault


def _load_plain_codec(source: ModelSource, options: Qwen3Options, device: torch.device) -> Codec:
    codec = source.codec(device)
    if device.type == "cpu" and options.precision in ("int8", "auto"):
        replace_codec_products(codec.decoder)
    else:
        pack(codec.decoder)
    return codec
