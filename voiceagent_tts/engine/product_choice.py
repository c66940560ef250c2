"""Chooses the kernel of every matrix product on a CPU: the fastest that a precision allows here.

`float32` and `bfloat16` choose only the layout of weights, so results change by the order of
summation; float32 weights that were stored in bfloat16 may be read as float16, which loses nothing.
`int8` and `int4` allow fewer bits in the layers of talker and code predictor; heads and projections
of text keep at least bfloat16, because their rounding changes codes directly. `auto` takes the
fastest of float32, bfloat16 and 8 bits. All three read the codec's weights as float16 where that is
faster; its arithmetic stays float32, because 8 bits and even bfloat16 are audible there.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from voiceagent_tts.engine.product_times import (
    Shape,
    Times,
    Timing,
    is_usable,
    stored_times,
    time_products,
)
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.model.layers import Linear
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.products import Kernel, are_float16, replace_linears

Precision = Literal["float32", "bfloat16", "float16", "int8", "int4", "auto"]

_SAME: tuple[Kernel, ...] = ("packed", "plain")
_EXACT: tuple[Kernel, ...] = (*_SAME, "float16-weights")
_HALF: tuple[Kernel, ...] = (*_EXACT, "bfloat16")
_EIGHT: tuple[Kernel, ...] = ("int8", "int8-weights")
_IN_LAYERS: Mapping[Precision, tuple[Kernel, ...]] = {
    "float32": _EXACT,
    "bfloat16": _SAME,
    "float16": _SAME,
    "int8": _EIGHT,
    "int4": ("int4", *_EIGHT),
    "auto": (*_HALF, *_EIGHT),
}
"""Kernels of the transformers' layers, in order of preference between equally fast ones."""

_OUTSIDE: Mapping[Precision, tuple[Kernel, ...]] = {
    "float32": _EXACT,
    "bfloat16": _SAME,
    "float16": _SAME,
}
"""Kernels of heads and projections; in all other precisions `_HALF`."""

_CODEC_ROWS = 4
"""Positions that most weights of the codec are multiplied by in a frame."""
_EQUAL = 1.05
"""Ratio of times up to which the earlier kernel is preferred, so that noise changes no choice."""
_SMALL = 2**18
"""Weights of a product up to which its time does not matter: the first kernel is taken."""


@dataclass(frozen=True, slots=True)
class Products:
    """A kernel for every product of a network.

    Attributes:
        in_layers: by shape, for the layers of both transformers.
        elsewhere: by shape, for heads and projections.
        timing: what the choice was made by.
    """

    in_layers: Mapping[Shape, Kernel]
    elsewhere: Mapping[Shape, Kernel]
    timing: Timing

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


def choose_products(
    network: Network, precision: Precision, rows: int, *, is_timed: bool = True
) -> Products:
    """Choose the fastest kernels that a precision allows.

    Args:
        network: a network with plain linear layers on a CPU.
        precision: as in `Qwen3Options`.
        rows: largest number of rows of a step.
        is_timed: whether to time kernels; otherwise the first one of a precision is taken, and the
            choice is the same in every process.

    Raises:
        VoiceAgentError: no kernel of this precision works on this machine.
    """
    inner = _layers(network)
    inner_ids = {id(linear) for linear in inner}
    outer = [linear for linear in _linears(network) if id(linear) not in inner_ids]
    layers, elsewhere = dict.fromkeys(map(_shape, inner)), dict.fromkeys(map(_shape, outer))
    allowed, others = _IN_LAYERS[precision], _OUTSIDE.get(precision, _HALF)
    if precision == "float32" and not _are_float16([*inner, *outer]):
        allowed = others = _SAME
    in_layers = {shape: _usable(allowed, shape, precision) for shape in layers}
    out_of_layers = {shape: _usable(others, shape, precision) for shape in elsewhere}
    wanted: dict[Shape, list[Kernel]] = {
        shape: [*in_layers.get(shape, ()), *out_of_layers.get(shape, ())]
        for shape in (layers | elsewhere)
        if is_timed and shape.outputs * shape.inputs > _SMALL
    }
    timing = time_products(wanted, rows)
    return Products(
        {shape: _fastest(kernels, timing.times.get(shape)) for shape, kernels in in_layers.items()},
        {
            shape: _fastest(kernels, timing.times.get(shape))
            for shape, kernels in out_of_layers.items()
        },
        timing,
    )


def choose_codec_products(decoder: nn.Module, *, is_timed: bool = True) -> Timing:
    """Replace the linear layers of a codec, reading weights as float16 where that is faster.

    Args:
        decoder: a decoder with plain linear layers on a CPU.
        is_timed: as in `choose_products`.
    """
    shapes = dict.fromkeys(map(_shape, _linears(decoder)))
    kernels: dict[Shape, list[Kernel]] = {
        shape: _usable(_EXACT, shape, "float32") for shape in shapes
    }
    is_large = {shape: shape.outputs * shape.inputs > _SMALL for shape in shapes}
    wanted: dict[Shape, list[Kernel]] = {
        shape: kernels[shape] for shape in shapes if is_timed and is_large[shape]
    }
    timing = time_products(wanted, _CODEC_ROWS)
    chosen: dict[Shape, Kernel] = {
        shape: _fastest(kernels[shape], timing.times.get(shape)) for shape in shapes
    }
    replace_linears(decoder, lambda linear: chosen[_shape(linear)])
    return timing


def stored_choice(precision: Precision) -> str:
    """Describe in a line what this machine's stored times choose for layers; empty without any."""
    counts: Counter[Kernel] = Counter()
    for times in stored_times().values():
        kernels: list[Kernel] = [kernel for kernel in _IN_LAYERS[precision] if kernel in times]
        if kernels:
            counts[_fastest(kernels, times)] += 1
    chosen = ", ".join(f"{kernel} for {count}" for kernel, count in counts.most_common())
    return f"{counts.total()} shapes timed: {chosen}" if counts else ""


def _are_float16(linears: Collection[Linear]) -> bool:
    large = (linear.weight for linear in linears if linear.weight.numel() > _SMALL)
    return all(weight.dtype == torch.float32 and are_float16(weight) for weight in large)


def _usable(kernels: Collection[Kernel], shape: Shape, precision: str) -> list[Kernel]:
    found: list[Kernel] = [kernel for kernel in kernels if is_usable(kernel, shape)]
    if not found:
        raise VoiceAgentError(
            f"expected a precision that this CPU computes in, got {precision}: PyTorch has no "
            f"kernel for it here; try float32",
            code=ErrorCode.INVALID_PARAM,
        )
    return found


def _fastest(kernels: list[Kernel], times: Times | None) -> Kernel:
    if times is None:
        return kernels[0]
    best = min(times[kernel] for kernel in kernels)
    return next(kernel for kernel in kernels if times[kernel] <= _EQUAL * best)


def _layers(network: Network) -> list[Linear]:
    parts = (network.talker.transformer, network.code_predictor.transformer)
    return [linear for part in parts for linear in _linears(part)]


def _linears(module: nn.Module) -> list[Linear]:
    return [each for each in module.modules() if isinstance(each, Linear)]


def _shape(linear: Linear) -> Shape:
    outputs, inputs = linear.weight.shape
    return Shape(outputs, inputs, linear.weight.dtype)
