"""Chooses what a device computes with: precision and kernels; refuses what it lacks."""

import logging
from typing import Any, Literal

import torch

from voiceagent_tts.engine.options import KernelChoice, Qwen3Options
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.model.config import ModelConfig
from voiceagent_tts.model.kernels import find_fault
from voiceagent_tts.model.layers import Kernels

_logger = logging.getLogger(__name__)


def check_bits(options: Qwen3Options, device: torch.device) -> None:
    """Refuse weights of 8 bits on a GPU.

    Raises:
        VoiceAgentError: as described.
    """
    if device.type != "cpu" and options.precision == "int8":
        raise VoiceAgentError(
            f"expected a precision for {device}, got {options.precision}; try bfloat16",
            code=ErrorCode.INVALID_PARAM,
        )


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


def set_tf32(dtype: torch.dtype) -> None:
    """Allow TF32 in this process, unless the model is in float32, by both of PyTorch's interfaces.

    The newer one alone leaves the older one's getters raising (torch 2.11 and 2.13), and Inductor
    and TunableOp read those. The older one alone leaves cuDNN's precision unnamed.
    """
    is_allowed = dtype != torch.float32
    precision = "tf32" if is_allowed else "ieee"
    torch.backends.cuda.matmul.allow_tf32 = is_allowed
    torch.backends.cudnn.allow_tf32 = is_allowed
    cudnn: Any = torch.backends.cudnn  # its stubs lack the newer interface
    for backend in (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn):
        backend.fp32_precision = precision


def choose_kernels(
    wanted: KernelChoice, config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> tuple[Kernels, str | None]:
    """Choose fused kernels if they are wanted and compute correctly on this device.

    Returns:
        The kernels, and why they are plain although fused kernels were wanted.

    Raises:
        VoiceAgentError: as `accept_fault`.
        RuntimeError: as `accept_fault`.
    """
    if wanted == "plain" or (wanted == "auto" and device.type == "cpu"):
        return "plain", None
    fault = find_fault(config.talker_config, dtype, device)
    if fault is None:
        return "fused", None
    accept_fault(fault, "kernels", wanted, device)
    return "plain", fault


def accept_fault(fault: str, setting: str, wanted: KernelChoice, device: torch.device) -> None:
    """Log why plain kernels are used instead of fused ones, if they can be.

    Raises:
        VoiceAgentError: fused kernels were named.
        RuntimeError: they have failed in a way that leaves the device unusable for this process.
    """
    if wanted != "auto":
        raise VoiceAgentError(
            f"expected {setting} that work on {device}, got {wanted}: {fault}; try auto or plain",
            code=ErrorCode.INVALID_PARAM,
        )
    if not _is_usable(device):
        raise RuntimeError(f"fused {setting} have left {device} unusable: {fault}")
    _logger.warning(
        "using plain %s, which are slower, because fused %s failed: %s", setting, setting, fault
    )


def _is_usable(device: torch.device) -> bool:
    """Whether the device still computes; after an illegal access, every call of CUDA fails."""
    if device.type == "cuda" and torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize(device)
        except RuntimeError:
            return False
    return True
