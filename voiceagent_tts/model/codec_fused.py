"""The codec's convolutions with one Triton launch between two matrix products.

A launch adds the bias of the layer before, activates, and writes where the next convolution reads:
behind its earlier inputs, or once for each tap of a convolution that is a matrix product. It also
writes the inputs that the next call needs, which are stored in the state at the end of the call,
in one launch for all convolutions. Residual sums are part of a matrix product, whose bias the next
activation adds. Numbers are rounded as in the plain layers, except that a bias is added after a
sum, and that sums are rounded once. Importing this module needs Triton.
"""

# Functions under `triton.jit` are in Triton's language, which its releases type differently.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false, reportOperatorIssue=false

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from voiceagent_tts.model.codec_layers import (
    CausalConvolution,
    ConvNeXt,
    DirectConvolution,
    ProductConvolution,
    ResidualUnit,
    SnakeBeta,
    Upsampling,
    UpsamplingBlock,
)
from voiceagent_tts.model.codec_state import CodecState, DecodeCall

_BLOCK = 1024
"""Numbers that a program writes."""
_WARPS = 4


@triton.jit
def _write_inputs(
    x, bias, alpha, inverse_beta, history, rows, written, fresh,
    length, lines, history_row, fresh_row,
    HAS_BIAS: tl.constexpr, HAS_SNAKE: tl.constexpr, REACH: tl.constexpr, CHANNELS: tl.constexpr,
    TAPS: tl.constexpr, DILATION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write `lines` lines of a row's earlier and activated inputs, and the last `REACH` to `fresh`.

    A position has `TAPS` lines, of inputs `DILATION` positions apart. Position 0 is the oldest of
    the `REACH` earlier inputs, which are activated already.
    """
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    channel, line = place % CHANNELS, place // CHANNELS
    is_line, is_in = line < lines, line < lines + REACH
    source = line // TAPS + (line % TAPS) * DILATION
    source = tl.where(is_line, source, length + line - lines)
    is_new = source >= REACH
    at = (row * length + source - REACH) * CHANNELS + channel
    new = tl.load(x + at, is_in & is_new, 0.0).to(tl.float32)
    if HAS_BIAS:
        new += tl.load(bias + channel, is_in, 0.0).to(tl.float32)
    if HAS_SNAKE:
        wave = tl.sin(new * tl.load(alpha + channel, is_in, 0.0))
        new += wave * wave * tl.load(inverse_beta + channel, is_in, 0.0)
    if REACH > 0:
        old = history + tl.load(rows + row) * history_row + source * CHANNELS + channel
        new = tl.where(is_new, new, tl.load(old, is_in & (source < REACH), 0.0).to(tl.float32))
    number = new.to(written.dtype.element_ty)
    tl.store(written + row * lines * CHANNELS + place, number, is_line)
    if REACH > 0:
        last = (line - lines) * CHANNELS + channel
        tl.store(fresh + row * fresh_row + last, number, is_in & (line >= lines))


@triton.jit
def _earlier_or_new(history, x, source, is_in, REACH: tl.constexpr, WIDTH: tl.constexpr):
    """Load the channels of one position; position 0 is the oldest of the earlier inputs."""
    if source < REACH:
        number = tl.load(history + source * WIDTH, is_in, 0.0)
    else:
        number = tl.load(x + (source - REACH) * WIDTH, is_in, 0.0)
    return number


@triton.jit
def _convolve_norm(
    x, taps, bias, weight, shift, history, rows, normed, fresh,
    length, eps, history_row, fresh_row,
    REACH: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Convolve each channel and normalise one position per program; the last ones write `fresh`.

    `taps` are the weights [REACH + 1, WIDTH]; `WIDE` is `WIDTH` rounded up to a power of two.
    """
    dtype = x.dtype.element_ty
    row, step = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel = tl.arange(0, WIDE)
    is_in = channel < WIDTH
    x += row * length * WIDTH + channel
    history += tl.load(rows + row) * history_row + channel
    if step < length:
        total = tl.zeros([WIDE], tl.float32)
        for tap in tl.static_range(REACH + 1):
            number = _earlier_or_new(history, x, step + tap, is_in, REACH, WIDTH).to(tl.float32)
            total += number * tl.load(taps + tap * WIDTH + channel, is_in, 0.0).to(tl.float32)
        total = (total + tl.load(bias + channel, is_in, 0.0).to(tl.float32)).to(dtype)
        mean = tl.sum(total.to(tl.float32), 0) / WIDTH
        off = tl.where(is_in, total.to(tl.float32) - mean, 0.0)
        scaled = off * tl.rsqrt(tl.sum(off * off, 0) / WIDTH + eps)
        scaled *= tl.load(weight + channel, is_in, 0.0).to(tl.float32)
        scaled += tl.load(shift + channel, is_in, 0.0).to(tl.float32)
        tl.store(normed + (row * length + step) * WIDTH + channel, scaled.to(dtype), is_in)
    else:
        goal = fresh + row * fresh_row + (step - length) * WIDTH + channel
        tl.store(goal, _earlier_or_new(history, x, step, is_in, REACH, WIDTH), is_in)


@dataclass(frozen=True, slots=True)
class Layout:
    """What a launch writes: `positions` lines of `taps` inputs, after `reach` earlier ones."""

    number: int = -1
    reach: int = 0
    positions: int = 0
    taps: int = 1
    dilation: int = 1


class FusedCall(DecodeCall):
    """A call whose launches write the next inputs beside the state; `advance` stores them."""

    def __init__(self, state: CodecState, frames: int, rows: Tensor) -> None:
        # Kernels read one row number after the other, and callers may pass a column of a table.
        super().__init__(state, frames, rows.contiguous())
        self._fresh = state.history.new_empty(len(self.positions), state.history.shape[1])
        self._end = 0

    def fresh(self, number: int) -> Tensor:
        """Return where a convolution's last inputs are written: [B, reach, C].

        Convolutions are called in the decoder's order, and the last ones need not be.
        """
        place = self.state.layout[number]
        end = place.start + place.reach * place.channels
        self._end = max(self._end, end)
        return self._fresh[:, place.start : end].unflatten(1, (place.reach, place.channels))

    def store_history(self, number: int, inputs: Tensor) -> None:
        """See `DecodeCall`."""
        self.fresh(number).copy_(inputs)

    def taps(self, number: int, x: Tensor, kernel: int, dilation: int) -> Tensor:
        """See `DecodeCall`."""
        if kernel == 1:
            return x
        layout = Layout(number, (kernel - 1) * dilation, x.shape[1], kernel, dilation)
        return self.write_inputs(x, None, None, layout)

    def advance(self) -> None:
        """See `DecodeCall`."""
        super().advance()
        self._store(self.state.history[:, : self._end], self._fresh[:, : self._end])

    def write_inputs(
        self, x: Tensor, bias: Tensor | None, snake: SnakeBeta | None, layout: Layout
    ) -> Tensor:
        """Add a bias to [B, T, C] and activate: [B, positions, taps * C]."""
        x, (rows, length, channels) = x.contiguous(), x.shape
        lines = layout.positions * layout.taps
        written = x.new_empty(rows, layout.positions, layout.taps * channels)
        history = fresh = x
        if layout.reach:
            history, fresh = self.state.convolution_inputs(layout.number), self.fresh(layout.number)
        alpha, inverse_beta = (x, x) if snake is None else (snake.alpha, snake.inverse_beta)
        _write_inputs[rows, triton.cdiv((lines + layout.reach) * channels, _BLOCK)](
            x, x if bias is None else bias, alpha, inverse_beta, history, self.rows, written,
            fresh, length, lines, history.stride(0), fresh.stride(0),
            bias is not None, snake is not None, layout.reach, channels, layout.taps,
            layout.dilation, _BLOCK,
            num_warps=_WARPS, enable_fp_fusion=False,
        )  # fmt: skip
        return written

    def convolve_norm(self, x: Tensor, mixing: ConvNeXt) -> Tensor:
        """Convolve each channel of [B, T, C], and normalise the channels of each position."""
        x, conv, norm = x.contiguous(), mixing.conv, mixing.norm
        rows, length, width = x.shape
        history, fresh = self.state.convolution_inputs(conv.number), self.fresh(conv.number)
        normed, wide = x.new_empty(x.shape), triton.next_power_of_2(width)
        _convolve_norm[rows, length + conv.reach](
            x, conv.weight, conv.bias, norm.weight, norm.bias, history, self.rows, normed, fresh,
            length, norm.eps, history.stride(0), fresh.stride(0), conv.reach, width, wide,
            num_warps=max(1, min(8, wide // 256)), enable_fp_fusion=True,
        )  # fmt: skip
        return normed


class FusedSynthesis:
    """The layers of a `CodecDecoder` from latents to samples, one launch between two products."""

    def __init__(self, decoder: Any) -> None:  # its module imports this one
        self._upsampling = [one for one in decoder.upsampling if isinstance(one, Upsampling)]
        self._mixing = [one for one in decoder.mixing if isinstance(one, ConvNeXt)]
        self._head: CausalConvolution = decoder.head
        self._blocks = [block for block in decoder.blocks if isinstance(block, UpsamplingBlock)]
        self._units = [
            [unit for unit in block.units if isinstance(unit, ResidualUnit)]
            for block in self._blocks
        ]
        self._biases = [
            list(accumulate(_of(unit.mix.bias).float() for unit in units)) for units in self._units
        ]
        """Biases that the stream of a block lacks after each of its units."""
        self._activation: SnakeBeta = decoder.activation
        self._output: CausalConvolution = decoder.output

    def __call__(self, x: Tensor, call: DecodeCall) -> Tensor:
        """[B, F, latent] -> [B, F * 1920, 1]."""
        assert isinstance(call, FusedCall), type(call)
        for upsampling, mixing in zip(self._upsampling, self._mixing, strict=True):
            x = upsampling(x, call)
            x = mixing.down(F.gelu(mixing.up(call.convolve_norm(x, mixing)))).add_(x)
        x, bias = self._head(x, call), None
        for block, units, biases in zip(self._blocks, self._units, self._biases, strict=True):
            conv = block.upsampling.conv
            taps = _taps(x, bias, block.activation, conv, call)
            x = conv.product(taps).view(len(x), -1, block.upsampling.outputs)
            bias = None
            for unit, following in zip(units, biases, strict=True):
                x = _add_unit(x, bias, unit, call)
                bias = following
        assert isinstance(self._output, DirectConvolution)
        padded = _padded(x, bias, self._activation, self._output, call)
        return _convolve(padded, self._output, self._output.bias)


def _add_unit(x: Tensor, bias: Tensor | None, unit: ResidualUnit, call: FusedCall) -> Tensor:
    """Add a residual unit to `x`, without the bias of its last product."""
    conv, pending = unit.conv, None
    if isinstance(conv, ProductConvolution):
        inner = conv.product(_taps(x, bias, unit.activation, conv, call))
    else:
        inner = _convolve(_padded(x, bias, unit.activation, conv, call), conv, None)
        pending = conv.bias
    layout = Layout(positions=inner.shape[1])
    active = call.write_inputs(inner, pending, unit.mix_activation, layout)
    flat = x.reshape(-1, x.shape[-1]).addmm_(active.flatten(0, 1), unit.mix.weight.T)
    return flat.view(x.shape)


def _convolve(padded: Tensor, conv: DirectConvolution, bias: Tensor | None) -> Tensor:
    image = padded.transpose(1, 2)[:, :, None]  # [B, C, 1, reach + T]
    image = F.conv2d(image, conv.weight, bias, dilation=(1, conv.dilation))
    return image[:, :, 0].transpose(1, 2)


def _padded(
    x: Tensor, bias: Tensor | None, snake: SnakeBeta, conv: CausalConvolution, call: FusedCall
) -> Tensor:
    """Activate [B, T, C], and prepend the convolution's earlier inputs: [B, reach + T, C]."""
    layout = Layout(conv.number, conv.reach, conv.reach + x.shape[1])
    return call.write_inputs(x, bias, snake, layout)


def _taps(
    x: Tensor, bias: Tensor | None, snake: SnakeBeta, conv: CausalConvolution, call: FusedCall
) -> Tensor:
    """Activate [B, T, C], and gather the inputs of each output: [B, T, kernel * C]."""
    layout = Layout(conv.number, conv.reach, x.shape[1], conv.kernel, conv.dilation)
    return call.write_inputs(x, bias, snake, layout)


def _of(bias: Tensor | None) -> Tensor:
    assert bias is not None
    return bias
