"""Chooses what a device computes with: precision, attention and kernels; refuses what it lacks.

On a CPU every matrix product takes the first kernel that fits, in a fixed order. `float32` and
`bfloat16` choose only the layout of weights, so results change by the order of summation; float32
weights that were stored in bfloat16 may be read as float16, which loses nothing. `int8` allows
fewer bits in the layers of talker and code predictor; heads and projections of text keep at least
16 bits, because their rounding changes codes directly. `auto` is `int8`, with more bits where the
CPU has no such kernel. Both read the codec's weights as float16; its arithmetic stays float32,
because 8 bits and even bfloat16 are audible there.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from voiceagent_tts.engine.options import KernelChoice, Precision, Qwen3Options
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.model.attention import AttentionBackend, make_attention
from voiceagent_tts.model.config import ModelConfig
from voiceagent_tts.model.kernels import find_fault
from voiceagent_tts.model.layers import Kernels, Linear
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.products import Kernel, are_float16, fits, replace_linears, works

_SAME: tuple[Kernel, ...] = ("packed", "plain")
_EXACT: tuple[Kernel, ...] = ("float16-weights", *_SAME)
_EIGHT: tuple[Kernel, ...] = ("int8", "int8-weights")
_IN_LAYERS: Mapping[Precision, tuple[Kernel, ...]] = {
    "float32": _EXACT,
    "bfloat16": _SAME,
    "float16": _SAME,
    "int8": _EIGHT,
    "auto": (*_EIGHT, *_EXACT),
}
"""Kernels of the transformers' layers, the fastest first (decision 26)."""

_OUTSIDE: Mapping[Precision, tuple[Kernel, ...]] = {"bfloat16": _SAME, "float16": _SAME}
"""Kernels of heads and projections; in all other precisions `_EXACT`."""

_SMALL = 2**18
"""Weights of a product up to which its time does not matter: they are not read as float16."""

_logger = logging.getLogger(__name__)


def check_bits(options: Qwen3Options, device: torch.device) -> None:
    """Refuse weights of 8 bits on a GPU."""
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


def choose_attention(
    options: Qwen3Options, kernels: Kernels, dtype: torch.dtype, device: torch.device
) -> AttentionBackend:
    """Return the attention of plain kernels: by default flash-attn where it can be used.

    Fused kernels have their own, so that flash-attn is for a GPU without Triton.
    """
    if options.attention is not None:
        return options.attention
    if kernels == "plain" and device.type == "cuda":
        with contextlib.suppress(VoiceAgentError):
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
    if not _still_computes(device):
        raise RuntimeError(f"fused {setting} have left {device} unusable: {fault}")
    _logger.warning(
        "using plain %s, which are slower, because fused %s failed: %s", setting, setting, fault
    )


def _still_computes(device: torch.device) -> bool:
    """Whether the device still computes; after an illegal access, every call of CUDA fails."""
    if device.type == "cuda" and torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize(device)
        except RuntimeError:
            return False
    return True


def replace_products(network: Network, precision: Precision) -> Counter[Kernel]:
    """Replace the linear layers of a network by kernels that a precision allows.

    Returns:
        The number of layers by their kernel.

    Raises:
        VoiceAgentError: no kernel of this precision works on this machine.
    """
    parts = (network.talker.transformer, network.code_predictor.transformer)
    in_layers = {id(linear) for part in parts for linear in _linears(part)}
    allowed, others = _IN_LAYERS[precision], _OUTSIDE.get(precision, _EXACT)
    if precision == "float32" and not _are_float16(_linears(network)):
        allowed = others = _SAME
    counts = Counter[Kernel]()

    def choose(linear: Linear) -> Kernel:
        kernel = _first(allowed if id(linear) in in_layers else others, linear, precision)
        counts[kernel] += 1
        return kernel

    replace_linears(network, choose)
    return counts


def replace_codec_products(decoder: nn.Module) -> None:
    """Replace the linear layers of a codec on a CPU; the weights of large ones become float16."""
    replace_linears(decoder, lambda linear: _first(_EXACT, linear, "float32"))


def _are_float16(linears: Collection[Linear]) -> bool:
    large = (linear.weight for linear in linears if linear.weight.numel() > _SMALL)
    return all(weight.dtype == torch.float32 and are_float16(weight) for weight in large)


def _first(kernels: Collection[Kernel], linear: Linear, precision: str) -> Kernel:
    for kernel in kernels:
        if _is_usable(kernel, linear.weight):
            return kernel
    raise VoiceAgentError(
        f"expected a precision that this CPU computes in, got {precision}: PyTorch has no "
        f"kernel for it here; try float32",
        code=ErrorCode.INVALID_PARAM,
    )


def _is_usable(kernel: Kernel, weight: Tensor) -> bool:
    if kernel == "float16-weights" and weight.numel() <= _SMALL:
        return False
    return fits(kernel, weight.shape[1]) and works(kernel, weight.dtype)


def _linears(module: nn.Module) -> list[Linear]:
    return [each for each in module.modules() if isinstance(each, Linear)]
