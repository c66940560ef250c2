"""Kernels for the matrix products of a CPU: a `Linear` in other layouts and other precisions.

`engine/device_choice` says which one is taken. Each agrees with `F.linear` within its bound in
`BOUNDS`; `works` tries it on this machine. The 8-bit products of several rows give each row a scale
of its own, so that the rows of a batch never influence each other.

Source: PyTorch's operators: `mkldnn`, which `torch.compile` uses for frozen weights; `quantized`
(FBGEMM and oneDNN); and that for weights of 8 bits, which torchao uses.
"""

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from voiceagent_tts.model.layers import Linear

Kernel = Literal["plain", "packed", "float16-weights", "int8", "int8-weights"]

BOUNDS: Mapping[Kernel, float] = {
    "plain": 0.0,
    "packed": 1e-5,
    "float16-weights": 1e-3,
    "int8-weights": 0.02,
    "int8": 0.03,
}
"""Largest relative error (Euclidean norm) of a product of normally distributed float32 numbers. In
lower precisions, products of the kernels `plain` and `packed` are rounded to that precision. With
weights that `are_float16`, that of `float16-weights` is 1e-5, too."""

_TYPICAL_ROWS = 32
"""Rows of input to pack for: within 10 % of the best speed from 4 to 50,000 rows."""
_TINY = 1e-20
_BELOW_FLOAT16 = 2**13 - 1
"""The bits of a float32 fraction that float16 lacks."""
_TRIAL = (64, 128)
"""Outputs and inputs of the product that tries a kernel."""


class PackedLinear(nn.Module):
    """A float32 or bfloat16 `Linear` with an opaque packed weight: neither readable nor movable.

    PyTorch's default library for float32 products uses half the vector width of some CPUs and
    rearranges the weights in every call. Weights packed once for oneDNN avoid both.
    """

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _TYPICAL_ROWS)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")


class HalfWeightsLinear(nn.Module):
    """A float32 `Linear` with weights in float16; products and sums are in float32.

    With weights that `are_float16` it is as exact as float32, and reads half of the memory.
    """

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self._weight = torch.ops.quantized.linear_prepack_fp16(weight, None)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] float32 -> [..., outputs] float32."""
        y = torch.ops.quantized.linear_dynamic_fp16(x, self._weight)
        return y if self._bias is None else y.add_(self._bias)


class Int8Linear(nn.Module):
    """A float32 `Linear` with weights and inputs in 8 bits, and sums in 32.

    Weights have one scale per output. A single row is quantized by the library, over its range;
    several rows are divided by their largest magnitudes first, so that one scale serves them all.
    """

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        numbers, scales = _in_8_bits(linear.weight.detach())
        with warnings.catch_warnings():  # "quantized tensors are deprecated"; the kernel is not
            warnings.simplefilter("ignore", UserWarning)
            weight = torch._make_per_channel_quantized_tensor(  # pyright: ignore
                numbers, scales.double(), torch.zeros(len(scales), dtype=torch.int64), 0
            )
            self._weight = torch.ops.quantized.linear_prepack(weight, None)
        self._bias = None if linear.bias is None else linear.bias.detach()
        # Without VNNI, pairs of products are summed in 16 bits, which inputs of 8 bits overflow.
        self._is_reduced = not torch.cpu._is_vnni_supported()
        self._steps = 63 if self._is_reduced else 127

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] float32 -> [..., outputs] float32."""
        if x.numel() == x.shape[-1]:
            y = torch.ops.quantized.linear_dynamic(x, self._weight, self._is_reduced)
        else:
            y = self._many_rows(x)
        return y if self._bias is None else y.add_(self._bias)

    def _many_rows(self, x: Tensor) -> Tensor:
        largest = torch.linalg.vector_norm(x, float("inf"), -1, keepdim=True).clamp_(min=_TINY)
        return torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x / largest, 1 / self._steps, self._steps + 1, self._weight
        ).mul_(largest)


class Int8WeightsLinear(nn.Module):
    """A float32 `Linear` of 8-bit weights and 32 n inputs, which are multiplied in bfloat16."""

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        self._weight, scales = _in_8_bits(linear.weight.detach())
        self._scales = scales.bfloat16()
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] float32 -> [..., outputs] float32."""
        rows = x.reshape(-1, x.shape[-1]).bfloat16()
        y = torch.ops.aten._weight_int8pack_mm(rows, self._weight, self._scales).float()
        y = y.view(*x.shape[:-1], -1)
        return y if self._bias is None else y.add_(self._bias)


_MAKERS: Mapping[Kernel, Callable[[Linear], nn.Module]] = {
    "plain": lambda linear: linear,
    "packed": PackedLinear,
    "float16-weights": HalfWeightsLinear,
    "int8": Int8Linear,
    "int8-weights": Int8WeightsLinear,
}


def make(kernel: Kernel, linear: Linear) -> nn.Module:
    """Return a layer that computes what `linear` computes, by `kernel`."""
    return _MAKERS[kernel](linear)


def are_float16(weight: Tensor) -> bool:
    """Return whether float32 weights fit into float16, as those stored in bfloat16 do.

    Numbers below 2 ** -14 may lose bits, by less than 2 ** -25.
    """
    low, high = weight.aminmax()
    if max(-low, high) > torch.finfo(torch.float16).max:
        return False
    return not (weight.view(torch.int32) & _BELOW_FLOAT16).any()


def fits(kernel: Kernel, inputs: int) -> bool:
    """Return whether a kernel supports products of so many inputs.

    PyTorch does not check this for `int8-weights`: with 100 inputs the process dies.
    """
    return kernel != "int8-weights" or inputs % 32 == 0


@functools.cache
def works(kernel: Kernel, dtype: torch.dtype) -> bool:
    """Return whether a kernel agrees with its plain twin on this machine, in networks of `dtype`.

    A processor or a PyTorch without it says so by an exception, of a type of its own.
    """
    if kernel == "plain":
        return True
    if dtype != torch.float32 and (kernel != "packed" or dtype != torch.bfloat16):
        return False
    if kernel == "packed" and not _has_onednn(dtype):
        return False
    outputs, inputs = _TRIAL
    linear, generator = Linear(inputs, outputs), torch.Generator().manual_seed(0)
    linear.weight.data = torch.randn(outputs, inputs, generator=generator).to(dtype)
    x = torch.randn(3, inputs, generator=generator).to(dtype)
    try:
        layer = make(kernel, linear)
        found = torch.cat((layer(x[:1]), layer(x[1:])))
    except (RuntimeError, NotImplementedError, AttributeError):
        return False
    expected = F.linear(x.float(), linear.weight.float())
    bound = max(BOUNDS[kernel], 0.01 if dtype == torch.bfloat16 else 0.0)
    return bool((found.float() - expected).norm() < bound * expected.norm())


def replace_linears(module: nn.Module, choose: Callable[[Linear], Kernel]) -> None:
    """Replace every `Linear` below `module` by the kernel that `choose` returns for it.

    Call this last: a replaced layer can be neither loaded nor moved.
    """
    parents = [parent for parent in module.modules() if not isinstance(parent, Linear)]
    for parent in parents:  # one at a time, to free the plain weights early
        for name, child in list(parent.named_children()):
            if isinstance(child, Linear):
                setattr(parent, name, make(choose(child), child))


def pack(module: nn.Module) -> None:
    """Replace every `Linear` below `module` by its packed form, if this machine supports it."""
    replace_linears(module, lambda linear: "packed" if _can_pack(linear.weight) else "plain")


def _can_pack(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and works("packed", weight.dtype)


def _has_onednn(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    return dtype != torch.bfloat16 or torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _in_8_bits(weight: Tensor) -> tuple[Tensor, Tensor]:
    weight = weight.float()
    scales = (weight.abs().amax(dim=1) / 127).clamp_(min=_TINY)
    return (weight / scales[:, None]).round_().to(torch.int8), scales
