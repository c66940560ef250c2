"""Chooses the kernel of every matrix product on a CPU: the first that fits, in a fixed order.

`float32` and `bfloat16` choose only the layout of weights, so results change by the order of
summation; float32 weights that were stored in bfloat16 may be read as float16, which loses nothing.
`int8` allows fewer bits in the layers of talker and code predictor; heads and projections of text
keep at least 16 bits, because their rounding changes codes directly. `auto` is `int8`, with more
bits where the CPU has no such kernel. Both read the codec's weights as float16; its
arithmetic stays float32, because 8 bits and even bfloat16 are audible there.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.model.layers import Linear
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.products import Kernel, are_float16, fits, replace_linears, works

Precision = Literal["float32", "bfloat16", "float16", "int8", "auto"]

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


def replace_products(network: Network, precision: Precision) -> Counter[Kernel]:
    """Replace the linear layers of a network by kernels that a precision allows.

    Args:
        network: a network with plain linear layers on a CPU.
        precision: as in `Qwen3Options`.

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
