"""Triton kernels for matrix products of few rows, together with the operation before each.

A step of up to 16 rows takes the time of its launches and of reading its weights, so a product that
computes the norm or the gate before it saves a launch. Every program computes that operation for
all rows again, which costs little for few of them. Values are rounded where the plain operations
round. Importing this module needs Triton.
"""

# Functions under `triton.jit` are in Triton's language, which its releases type differently.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false, reportOperatorIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from voiceagent_tts.model.fused import FusedOperations
from voiceagent_tts.model.layers import Linear, RMSNorm

MOST_ROWS = 16
"""Maximum rows of these products: the smallest side of a product of tensor cores."""
_OUTPUTS = 16
"""Outputs of a program; few, so that a small layer keeps every multiprocessor busy."""
_INPUTS = 128
"""Inputs that a program reads at once."""


@triton.jit
def _stream(x, added, at, is_in, HAS_ADDED: tl.constexpr):
    """Return a part of the residual stream, in the rounding of its dtype."""
    dtype = x.dtype.element_ty
    stream = tl.load(x + at, is_in, 0.0)
    if HAS_ADDED:
        other = tl.load(added + at, is_in, 0.0)
        stream = (stream.to(tl.float32) + other.to(tl.float32)).to(dtype)
    return stream


@triton.jit
def _norm_product(
    x, added, norm, weight, total, result, rows, eps,
    HAS_ADDED: tl.constexpr, WIDTH: tl.constexpr, OUTPUTS: tl.constexpr,
    LINES: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Add and normalise all rows, and multiply by `COLUMNS` rows of the weight."""
    dtype = x.dtype.element_ty
    line, inner = tl.arange(0, LINES)[:, None], tl.arange(0, DEPTH)[None, :]
    squares = tl.zeros([LINES], tl.float32)
    for start in tl.range(0, WIDTH, DEPTH):
        is_in = (line < rows) & (start + inner < WIDTH)
        at = line * WIDTH + start + inner
        stream = _stream(x, added, at, is_in, HAS_ADDED)
        if HAS_ADDED:
            if tl.program_id(0) == 0:
                tl.store(total + at, stream, is_in)
        squares += tl.sum(stream.to(tl.float32) * stream.to(tl.float32), 1)
    scale = tl.rsqrt(squares / WIDTH + eps)[:, None]

    output = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    sums = tl.zeros([LINES, COLUMNS], tl.float32)
    for start in tl.range(0, WIDTH, DEPTH):
        is_inner = start + inner < WIDTH
        stream = _stream(
            x, added, line * WIDTH + start + inner, (line < rows) & is_inner, HAS_ADDED
        )
        unweighted = (stream.to(tl.float32) * scale).to(dtype).to(tl.float32)
        normed = tl.load(norm + start + inner, is_inner, 0.0).to(tl.float32) * unweighted
        place = output[:, None].to(tl.int64) * WIDTH + start + inner
        matrix = tl.load(weight + place, (output < OUTPUTS)[:, None] & is_inner, 0.0)
        sums = tl.dot(normed.to(dtype), tl.trans(matrix), sums, input_precision="ieee")
    goal = line * OUTPUTS + output[None, :]
    tl.store(result + goal, sums.to(dtype), (line < rows) & (output < OUTPUTS)[None, :])


@triton.jit
def _gate_product(
    gate_up, weight, result, rows,
    WIDTH: tl.constexpr, OUTPUTS: tl.constexpr,
    LINES: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Compute `silu(gate) * up` of all rows, and multiply by `COLUMNS` rows of the weight."""
    dtype = gate_up.dtype.element_ty
    line, inner = tl.arange(0, LINES)[:, None], tl.arange(0, DEPTH)[None, :]
    output = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    sums = tl.zeros([LINES, COLUMNS], tl.float32)
    for start in tl.range(0, WIDTH, DEPTH):
        is_inner = start + inner < WIDTH
        at, is_in = line * 2 * WIDTH + start + inner, (line < rows) & is_inner
        gate = tl.load(gate_up + at, is_in, 0.0).to(tl.float32)
        up = tl.load(gate_up + at + WIDTH, is_in, 0.0).to(tl.float32)
        opened = (gate / (1 + tl.exp(-gate))).to(dtype).to(tl.float32)
        place = output[:, None].to(tl.int64) * WIDTH + start + inner
        matrix = tl.load(weight + place, (output < OUTPUTS)[:, None] & is_inner, 0.0)
        sums = tl.dot((opened * up).to(dtype), tl.trans(matrix), sums, input_precision="ieee")
    goal = line * OUTPUTS + output[None, :]
    tl.store(result + goal, sums.to(dtype), (line < rows) & (output < OUTPUTS)[None, :])


class SkinnyOperations(FusedOperations):
    """Fused operations, whose products of few rows include the norm or the gate before them."""

    def norm_product(
        self, x: Tensor, added: Tensor | None, norm: RMSNorm, linear: Linear
    ) -> tuple[Tensor, Tensor]:
        """See `Operations`."""
        outputs, width = linear.weight.shape
        rows = x.numel() // width
        if rows > MOST_ROWS:
            return super().norm_product(x, added, norm, linear)
        x = x.contiguous()
        total, other = (x, x) if added is None else (torch.empty_like(x), added.contiguous())
        result = x.new_empty(*x.shape[:-1], outputs)
        _norm_product[triton.cdiv(outputs, _OUTPUTS),](
            x, other, norm.weight, linear.weight, total, result,
            rows, norm.eps, added is not None, width, outputs, MOST_ROWS, _OUTPUTS, _INPUTS,
            num_warps=4, enable_fp_fusion=True,
        )  # fmt: skip
        return total, result

    def gate_product(self, gate_up: Tensor, linear: Linear) -> Tensor:
        """See `Operations`."""
        outputs, width = linear.weight.shape
        rows = gate_up.numel() // (2 * width)
        if rows > MOST_ROWS:
            return super().gate_product(gate_up, linear)
        result = gate_up.new_empty(*gate_up.shape[:-1], outputs)
        _gate_product[triton.cdiv(outputs, _OUTPUTS),](
            gate_up.contiguous(), linear.weight, result, rows, width, outputs,
            MOST_ROWS, _OUTPUTS, _INPUTS,
            num_warps=4, enable_fp_fusion=True,
        )  # fmt: skip
        return result
