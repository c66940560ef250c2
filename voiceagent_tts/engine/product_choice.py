"""Chooses the kernel of every matrix product on a CPU: the first that fits, in a fixed order.

`float32` and `bfloat16` choose only the layout of weights, so results change by the order of
summation; float32 weights that were stored in bfloat16 may be read as float16, which loses nothing.
`int8` allows fewer bits in the layers of talker and code predictor; heads and projections of text
keep at least 16 bits, because their rounding changes codes directly. `auto` is `int8`, with more
bits where the CPU has no such kernel. Both read the codec's weights as float16; its arithmetic
stays float32, because 8 bits and even bfloat16 are audible there.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch import nn

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
"""Kernels of the transformers' layers, the fastest first (decision 39)."""

_SMALL = 2**18
"""Weights of a product up to which its time does not matter: they are not read as float16."""


def replace_products(network: Network, precision: Precision) -> str:
    """Replace the linear layers by the kernels that a precision allows.

    Every process of a machine chooses alike.

    Args:
        network: a network with plain linear layers on a CPU.
        precision: as in `Qwen3Options`.

    Returns:
        The kernels with the shapes of their weights, as one line for the log.

    Raises:
        VoiceAgentError: no kernel of this precision works on this machine.
    """
    parts = (network.talker.transformer, network.code_predictor.transformer)
    in_layers = {id(linear) for part in parts for linear in _linears(part)}
    allowed = _IN_LAYERS[precision]
    others = _SAME if precision in ("bfloat16", "float16") else _EXACT
    if precision == "float32" and not all(_is_float16(one) for one in _linears(network)):
        allowed = others = _SAME
    shapes = defaultdict[Kernel, set[str]](set)

    def choose(linear: Linear) -> Kernel:
        kernel = _first(allowed if id(linear) in in_layers else others, linear, precision)
        shapes[kernel].add("x".join(map(str, linear.weight.shape)))
        return kernel

    replace_linears(network, choose)
    return "; ".join(f"{kernel} for {', '.join(sorted(of))}" for kernel, of in shapes.items())


def replace_codec_products(decoder: nn.Module) -> None:
    """Replace the linear layers of a codec on a CPU; the weights of large ones become float16."""
    replace_linears(decoder, lambda linear: _first(_EXACT, linear, "float32"))


def _is_float16(linear: Linear) -> bool:
    """Whether reading the weights as float16 loses nothing; small ones are not read so."""
    weight = linear.weight
    return weight.numel() <= _SMALL or (weight.dtype == torch.float32 and are_float16(weight))


def _first(kernels: Iterable[Kernel], linear: Linear, precision: str) -> Kernel:
    for kernel in kernels:
        if _is_usable(kernel, linear):
            return kernel
    raise VoiceAgentError(
        f"expected a precision that this CPU computes in, got {precision}: PyTorch has no "
        f"kernel for it here; try float32",
        code=ErrorCode.INVALID_PARAM,
    )


def _is_usable(kernel: Kernel, linear: Linear) -> bool:
    if kernel == "float16-weights" and linear.weight.numel() <= _SMALL:
        return False
    return fits(kernel, linear.weight.shape[1]) and works(kernel, linear.weight.dtype)


def _linears(module: nn.Module) -> list[Linear]:
    return [each for each in module.modules() if isinstance(each, Linear)]
