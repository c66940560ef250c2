"""Chooses what a device computes with: precision, attention and kernels; refuses what it lacks."""

import contextlib
import logging
from typing import Any, Literal

import torch

from voiceagent_tts.engine.options import KernelChoice, Qwen3Options
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.model.attention import AttentionBackend, make_attention
from voiceagent_tts.model.config import ModelConfig
from voiceagent_tts.model.kernels import find_fault
from voiceagent_tts.model.layers import Kernels

_logger = logging.getLogger(__name__)


def check_bits(options: Qwen3Options, device: torch.device) -> None:
    """Refuse the 8 and 4 bits of one kind of device on the other, and those that kernels lack.

    Raises:
        VoiceAgentError: as described.
    """
    if device.type == "cpu" and options.quantize is not None:
        got, other = f"quantize {options.quantize} on a CPU", "precision int8"
    elif device.type != "cpu" and options.precision in ("int8", "int4"):
        got, other = f"precision {options.precision} on a GPU", "quantize int8"
    else:
        return
    raise VoiceAgentError(
        f"expected a precision for {device}, got {got}; try {other}", code=ErrorCode.INVALID_PARAM
    )


def choose_codec_device(options: Qwen3Options, device: torch.device) -> torch.device:
    """Return the device of the codec: the model's, or the other GPU that the options name.

    Raises:
        VoiceAgentError: the codec would be on a GPU and the model on a CPU, or the other way round.
    """
    codec_device = torch.device(options.codec_device or device)
    if codec_device.type != device.type:
        raise VoiceAgentError(
            f"expected codec_device to be another GPU, got {codec_device} beside a model on "
            f"{device}; leave it out to run the codec on {device}",
            code=ErrorCode.INVALID_PARAM,
        )
    return codec_device


def choose_dtype(options: Qwen3Options, device: torch.device) -> torch.dtype:
    """Return the data type of talker and code predictor."""
    precision = options.precision
    if precision not in ("float32", "bfloat16", "float16"):
        precision = _best_precision(device)
    return getattr(torch, precision)


def _best_precision(device: torch.device) -> Literal["float32", "bfloat16", "float16"]:
    if device.type == "cpu":
        return "float32"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return "bfloat16"
    _logger.warning(
        "this GPU does not support bfloat16; talker and code predictor compute in float16"
    )
    return "float16"


def set_tf32(options: Qwen3Options, dtype: torch.dtype) -> None:
    """Allow or forbid TF32 in this process, through both of PyTorch's interfaces.

    The newer one alone leaves the older one's getters raising (torch 2.11 and 2.13), and Inductor
    and TunableOp read those. The older one alone leaves cuDNN's precision unnamed.
    """
    is_allowed = dtype != torch.float32 if options.has_tf32 is None else options.has_tf32
    precision = "tf32" if is_allowed else "ieee"
    torch.backends.cuda.matmul.allow_tf32 = is_allowed
    torch.backends.cudnn.allow_tf32 = is_allowed
    cudnn: Any = torch.backends.cudnn  # its stubs lack the newer interface
    for backend in (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn):
        backend.fp32_precision = precision


def best_attention(device: torch.device, dtype: torch.dtype) -> AttentionBackend:
    """Return `flash` if flash-attn can be loaded and used, otherwise `sdpa`."""
    if device.type == "cuda":
        with contextlib.suppress(ValueError):
            make_attention("flash", dtype)
            return "flash"
    return "sdpa"


def choose_kernels(
    wanted: KernelChoice, config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> tuple[Kernels, str | None]:
    """Choose fused kernels if they are wanted and compute correctly on this device.

    Returns:
        The kernels, and why they are plain although fused kernels were wanted.

    Raises:
        VoiceAgentError: kernels were named, and they do not work.
        RuntimeError: fused kernels have failed in a way that leaves the device unusable for this
            process.
    """
    if wanted == "plain" or (wanted == "auto" and device.type == "cpu"):
        return "plain", None
    fault = find_fault(config.talker_config, dtype, device)
    if fault is None:
        return "fused", None
    if wanted != "auto":
        raise VoiceAgentError(
            f"expected kernels that work on {device}, got {wanted}: {fault}; try auto or plain",
            code=ErrorCode.INVALID_PARAM,
        )
    if not _is_usable(device):
        raise RuntimeError(f"fused kernels have left {device} unusable: {fault}")
    _logger.warning(
        "using plain kernels, which are slower, because fused kernels failed: %s", fault
    )
    return "plain", fault


def _is_usable(device: torch.device) -> bool:
    """Whether the device still computes; after an illegal access, every call of CUDA fails."""
    if device.type == "cuda" and torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize(device)
        except RuntimeError:
            return False
    return True
