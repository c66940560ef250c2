"""The codec's convolutions with one Triton launch for each activation.

A launch adds the bias of the layer before, activates, and writes where the next convolution reads:
behind its earlier inputs, or once for each tap of a convolution that is a matrix product. Residual
sums are part of a matrix product, whose bias the next activation adds. Numbers are rounded as in
the plain layers, except that a bias is added after a sum. Importing this module needs Triton.
"""

# Functions under `triton.jit` are in Triton's language, which its releases type differently.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false, reportOperatorIssue=false

from collections.abc import Sequence
from itertools import accumulate

import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn

from voiceagent_tts.model.codec_layers import (
    CausalConvolution,
    DirectConvolution,
    ProductConvolution,
    ResidualUnit,
    SnakeBeta,
    UpsamplingBlock,
)
from voiceagent_tts.model.codec_state import DecodeCall

_BLOCK = 1024
"""Numbers that a program writes."""
_WARPS = 4


@triton.jit
def _activate(
    x, bias, alpha, inverse_beta, history, rows, written,
    length, begin, count, history_row,
    HAS_BIAS: tl.constexpr, HAS_ROWS: tl.constexpr, REACH: tl.constexpr, CHANNELS: tl.constexpr,
    TAPS: tl.constexpr, DILATION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write `count` positions of a row's earlier and activated inputs, from `begin` on.

    Each position has `TAPS` inputs, `DILATION` positions apart. Position 0 is the oldest of the
    `REACH` earlier inputs, which are activated already.
    """
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_in = place < count * TAPS * CHANNELS
    channel, line = place % CHANNELS, place // CHANNELS
    source = begin + line // TAPS + (line % TAPS) * DILATION
    is_new = source >= REACH
    at = (row * length + source - REACH) * CHANNELS + channel
    new = tl.load(x + at, is_in & is_new, 0.0).to(tl.float32)
    if HAS_BIAS:
        new += tl.load(bias + channel, is_in, 0.0).to(tl.float32)
    wave = tl.sin(new * tl.load(alpha + channel, is_in, 0.0))
    new += wave * wave * tl.load(inverse_beta + channel, is_in, 0.0)
    if REACH > 0:
        stored = tl.load(rows + row) if HAS_ROWS else row
        old = history + stored * history_row + source * CHANNELS + channel
        new = tl.where(is_new, new, tl.load(old, is_in & (source < REACH), 0.0).to(tl.float32))
    goal = written + row * count * TAPS * CHANNELS + place
    tl.store(goal, new.to(written.dtype.element_ty), is_in)


class FusedSynthesis:
    """Blocks of a decoder and its last convolution, with fused activations.

    Args:
        blocks: blocks of the decoder, whose weights are loaded.
        activation: activation after the blocks.
        output: convolution to samples.
    """

    def __init__(
        self, blocks: Sequence[nn.Module], activation: SnakeBeta, output: CausalConvolution
    ) -> None:
        self._blocks = [block for block in blocks if isinstance(block, UpsamplingBlock)]
        self._units = [
            [unit for unit in block.units if isinstance(unit, ResidualUnit)]
            for block in self._blocks
        ]
        self._biases = [
            list(accumulate(_of(unit.mix.bias) for unit in units)) for units in self._units
        ]
        """Biases that the stream of a block lacks after each of its units."""
        self._activation, self._output = activation, output

    def __call__(self, x: Tensor, call: DecodeCall) -> Tensor:
        """[B, T, C] after the first convolution -> [B, T * rate, 1]."""
        bias = None
        for block, units, biases in zip(self._blocks, self._units, self._biases, strict=True):
            conv = block.upsampling.conv
            taps = _taps(x, bias, block.activation, conv, call)
            x = conv.product(taps).view(len(x), -1, block.upsampling.outputs)
            bias = None
            for unit, following in zip(units, biases, strict=True):
                x = _add_unit(x, bias, unit, call)
                bias = following
        padded = _padded(x, bias, self._activation, self._output, call)
        assert isinstance(self._output, DirectConvolution)
        return _convolve(padded, self._output, self._output.bias)


def _add_unit(x: Tensor, bias: Tensor | None, unit: ResidualUnit, call: DecodeCall) -> Tensor:
    """Add a residual unit to `x`, without the bias of its last product."""
    conv, pending = unit.conv, None
    if isinstance(conv, ProductConvolution):
        inner = conv.product(_taps(x, bias, unit.activation, conv, call))
    else:
        inner = _convolve(_padded(x, bias, unit.activation, conv, call), conv, None)
        pending = conv.bias
    active = _written(inner, pending, unit.mix_activation, count=inner.shape[1])
    flat = x.reshape(-1, x.shape[-1]).addmm_(active.flatten(0, 1), unit.mix.weight.T)
    return flat.view(x.shape)


def _convolve(padded: Tensor, conv: DirectConvolution, bias: Tensor | None) -> Tensor:
    image = padded.transpose(1, 2)[:, :, None]  # [B, C, 1, reach + T]
    image = F.conv2d(image, conv.weight, bias, dilation=(1, conv.dilation))
    return image[:, :, 0].transpose(1, 2)


def _padded(
    x: Tensor, bias: Tensor | None, snake: SnakeBeta, conv: CausalConvolution, call: DecodeCall
) -> Tensor:
    """Activate [B, T, C], and prepend the convolution's earlier inputs: [B, reach + T, C]."""
    padded = _written(x, bias, snake, conv, call, count=conv.reach + x.shape[1])
    call.store_history(conv.number, padded[:, x.shape[1] :])
    return padded


def _taps(
    x: Tensor, bias: Tensor | None, snake: SnakeBeta, conv: CausalConvolution, call: DecodeCall
) -> Tensor:
    """Activate [B, T, C], and gather the inputs of each output: [B, T, kernel * C]."""
    length = x.shape[1]
    taps = _written(x, bias, snake, conv, call, count=length, taps=conv.kernel)
    last = _written(x, bias, snake, conv, call, begin=length, count=conv.reach)
    call.store_history(conv.number, last)
    return taps


def _written(
    x: Tensor,
    bias: Tensor | None,
    snake: SnakeBeta,
    conv: CausalConvolution | None = None,
    call: DecodeCall | None = None,
    *,
    begin: int = 0,
    count: int,
    taps: int = 1,
) -> Tensor:
    """Launch the kernel: [B, count, taps * C], without earlier inputs if there is no `conv`."""
    x, (rows, length, channels) = x.contiguous(), x.shape
    written = x.new_empty(rows, count, taps * channels)
    history, places = x, None
    if conv is not None and call is not None:
        history, places = call.history(conv.number), call.rows
    _activate[rows, triton.cdiv(count * taps * channels, _BLOCK)](
        x, x if bias is None else bias, snake.alpha, snake.inverse_beta, history,
        x if places is None else places, written,
        length, begin, count, history.stride(0),
        bias is not None, places is not None, 0 if conv is None else conv.reach, channels, taps,
        1 if conv is None else conv.dilation, _BLOCK,
        num_warps=_WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return written


def _of(bias: Tensor | None) -> Tensor:
    assert bias is not None
    return bias
