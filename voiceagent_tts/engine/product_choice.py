"""Chooses the kernel of every matrix product on a CPU: the first that fits, in a fixed order.

`float32` and `bfloat16` choose only the layout of weights, so results change by the order of
summation; float32 weights that were stored in bfloat16 may be read as float16, which loses nothing.
`int8` and `int4` allow fewer bits in the layers of talker and code predictor; heads and projections
of text keep at least 16 bits, because their rounding changes codes directly. `auto` is `int8`, with
more bits where the CPU has no such kernel. All three read the codec's weights as float16; its
arithmetic stays float32, because 8 bits and even bfloat16 are audible there.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.model.layers import Linear
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.products import Kernel, are_float16, fits, replace_linears, works

Precision = Literal["float32", "bfloat16", "float16", "int8", "int4", "auto"]

_SAME: tuple[Kernel, ...] = ("packed", "plain")
_EXACT: tuple[Kernel, ...] = ("float16-weights", *_SAME)
_HALF: tuple[Kernel, ...] = (*_EXACT, "bfloat16")
_EIGHT: tuple[Kernel, ...] = ("int8", "int8-weights")
_IN_LAYERS: Mapping[Precision, tuple[Kernel, ...]] = {
    "float32": _EXACT,
    "bfloat16": _SAME,
    "float16": _SAME,
    "int8": _EIGHT,
    "int4": ("int4", *_EIGHT),
    "auto": (*_EIGHT, *_HALF),
}
"""Kernels of the transformers' layers, the fastest first (decision 26)."""

_OUTSIDE: Mapping[Precision, tuple[Kernel, ...]] = {
    "float32": _EXACT,
    "bfloat16": _SAME,
    "float16": _SAME,
}
"""Kernels of heads and projections; in all other precisions `_HALF`."""

_SMALL = 2**18
"""Weights of a product up to which its time does not matter: they are not read as float16."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A product: sizes of its weight, and the precision of its inputs and outputs."""

    outputs: int
    inputs: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Products:
    """A kernel for every product of a network.

    Attributes:
        in_layers: by shape, for the layers of both transformers.
        elsewhere: by shape, for heads and projections.
    """

    in_layers: Mapping[Shape, Kernel]
    elsewhere: Mapping[Shape, Kernel]

    def apply(self, network: Network) -> None:
        """Replace the linear layers of a network, which has plain ones."""
        layers = {id(linear) for linear in _layers(network)}

        def kernel_of(linear: Linear) -> Kernel:
            kernels = self.in_layers if id(linear) in layers else self.elsewhere
            return kernels[_shape(linear)]

        replace_linears(network, kernel_of)

    def __str__(self) -> str:
        counts: dict[Kernel, list[str]] = {}
        for shape, kernel in self.in_layers.items():
            counts.setdefault(kernel, []).append(f"{shape.outputs}x{shape.inputs}")
        parts = (f"{kernel} for {', '.join(shapes)}" for kernel, shapes in counts.items())
        others = " and ".join(sorted(set(self.elsewhere.values())))
        return f"{'; '.join(parts)}; {others} for heads and projections"


def choose_products(network: Network, precision: Precision) -> Products:
    """Choose the kernels that a precision allows, the same in every process of a machine.

    Args:
        network: a network with plain linear layers on a CPU.
        precision: as in `Qwen3Options`.

    Raises:
        VoiceAgentError: no kernel of this precision works on this machine.
    """
    inner = _layers(network)
    inner_ids = {id(linear) for linear in inner}
    outer = [linear for linear in _linears(network) if id(linear) not in inner_ids]
    allowed, others = _IN_LAYERS[precision], _OUTSIDE.get(precision, _HALF)
    if precision == "float32" and not _are_float16([*inner, *outer]):
        allowed = others = _SAME
    return Products(
        {shape: _first(allowed, shape, precision) for shape in map(_shape, inner)},
        {shape: _first(others, shape, precision) for shape in map(_shape, outer)},
    )


def choose_codec_products(decoder: nn.Module) -> None:
    """Replace the linear layers of a codec on a CPU; the weights of large ones become float16."""
    replace_linears(decoder, lambda linear: _first(_EXACT, _shape(linear), "float32"))


def _are_float16(linears: Collection[Linear]) -> bool:
    large = (linear.weight for linear in linears if linear.weight.numel() > _SMALL)
    return all(weight.dtype == torch.float32 and are_float16(weight) for weight in large)


def _first(kernels: Collection[Kernel], shape: Shape, precision: str) -> Kernel:
    for kernel in kernels:
        if _is_usable(kernel, shape):
            return kernel
    raise VoiceAgentError(
        f"expected a precision that this CPU computes in, got {precision}: PyTorch has no "
        f"kernel for it here; try float32",
        code=ErrorCode.INVALID_PARAM,
    )


def _is_usable(kernel: Kernel, shape: Shape) -> bool:
    if kernel == "float16-weights" and shape.outputs * shape.inputs <= _SMALL:
        return False
    return fits(kernel, shape.outputs, shape.inputs) and works(kernel, shape.dtype)


def _layers(network: Network) -> list[Linear]:
    parts = (network.talker.transformer, network.code_predictor.transformer)
    return [linear for part in parts for linear in _linears(part)]


def _linears(module: nn.Module) -> list[Linear]:
    return [each for each in module.modules() if isinstance(each, Linear)]


def _shape(linear: Linear) -> Shape:
    outputs, inputs = linear.weight.shape
    return Shape(outputs, inputs, linear.weight.dtype)
