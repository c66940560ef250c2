"""Convolutional layers of the codec's decoder, and its codebooks.

All activations are [B, T, C], channels last. Convolutions are matrix products or channels-last
kernels, upsampling is a product and a view, and nothing is transposed. Convolutions read earlier
inputs from a `DecodeCall`, so the output does not depend on how a stream is cut into portions.
Where a checkpoint's layout differs from ours, `weights` yields scratch tensors; each must be
filled before the next is requested.

Source: qwen-tts 0.1.1, `Qwen3TTSTokenizerV2Decoder`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from voiceagent_tts.model.codec_state import DecodeCall
from voiceagent_tts.model.config import CodecDecoderConfig
from voiceagent_tts.model.layers import Linear, Weights

KERNEL = 7
DILATIONS = (1, 3, 9)
"""Dilations of the three residual units of a decoder block."""

_WIDE_CHANNELS = 512
"""Channels from which a matrix product is faster: many weights, few positions."""


class SnakeBeta(nn.Module):
    """Computes `x + sin(alpha x)^2 / beta` with one alpha and one beta per channel.

    The checkpoint stores logarithms. Their exponentials are kept in float32: in half precision they
    overflow, and rounded phases are audible.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Buffer(torch.empty(channels, dtype=torch.float32))
        self.inverse_beta = nn.Buffer(torch.empty(channels, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        # Convert first: arithmetic of mixed precisions is several times slower.
        exact = x.to(torch.promote_types(x.dtype, self.alpha.dtype))
        wave = (exact * self.alpha).sin_().square_()
        return torch.addcmul(exact, wave, self.inverse_beta).to(x.dtype)

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        logarithm = torch.empty_like(self.alpha)
        yield f"{name}.alpha", logarithm
        self.alpha.copy_(logarithm.exp())
        yield f"{name}.beta", logarithm
        self.inverse_beta.copy_(1.0 / (logarithm.exp() + 1e-9))


class CausalConvolution(nn.Module):
    """Base of convolutions whose output depends only on the current and earlier positions."""

    def __init__(self, inputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.inputs, self.kernel, self.dilation = inputs, kernel, dilation
        self.reach = (kernel - 1) * dilation
        """Number of earlier inputs that an output depends on."""
        self.number = -1
        """Index of this convolution in `CodecState.layout`; assigned by the decoder."""

    def taps(self, x: Tensor, call: DecodeCall) -> Tensor:
        """Gather the inputs of each output: [B, T, C] -> [B, T, kernel * C]."""
        return call.taps(self.number, x, self.kernel, self.dilation)


class ProductConvolution(CausalConvolution):
    """Causal convolution as one matrix product over the taps; for many channels."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__(inputs, kernel, dilation)
        self.product = Linear(kernel * inputs, outputs, bias=True)

    def forward(self, x: Tensor, call: DecodeCall) -> Tensor:
        """[B, T, inputs] -> [B, T, outputs]."""
        return self.product(self.taps(x, call))

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        matrix = self.product.weight
        weight = matrix.new_empty(len(matrix), self.inputs, self.kernel)
        yield f"{name}.conv.weight", weight
        matrix.view(-1, self.kernel, self.inputs).copy_(weight.transpose(1, 2))
        yield f"{name}.conv.bias", _bias(self.product)


class DirectConvolution(CausalConvolution):
    """Causal convolution by PyTorch's kernel; for few channels and many positions."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__(inputs, kernel, dilation)
        weight = torch.empty(outputs, inputs, 1, kernel).to(memory_format=torch.channels_last)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs), requires_grad=False)

    def forward(self, x: Tensor, call: DecodeCall) -> Tensor:
        """[B, T, inputs] -> [B, T, outputs]."""
        # An image of height 1, channels first.
        image = call.prepend_history(self.number, x).transpose(1, 2)[:, :, None]
        image = F.conv2d(image, self.weight, self.bias, dilation=(1, self.dilation))
        return image[:, :, 0].transpose(1, 2)

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        weight = torch.empty_like(self.weight[:, :, 0], memory_format=torch.contiguous_format)
        yield f"{name}.conv.weight", weight
        self.weight.copy_(weight[:, :, None])
        yield f"{name}.conv.bias", self.bias


def causal_convolution(
    inputs: int, outputs: int, kernel: int = KERNEL, dilation: int = 1
) -> ProductConvolution | DirectConvolution:
    """Return the faster implementation for this number of channels."""
    kind = ProductConvolution if inputs >= _WIDE_CHANNELS else DirectConvolution
    return kind(inputs, outputs, kernel, dilation)


class DepthwiseConvolution(CausalConvolution):
    """Causal convolution of each channel separately."""

    def __init__(self, channels: int, kernel: int = KERNEL) -> None:
        super().__init__(channels, kernel)
        self.weight = nn.Parameter(torch.empty(kernel, channels), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(channels), requires_grad=False)

    def forward(self, x: Tensor, call: DecodeCall) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        taps = self.taps(x, call).unflatten(-1, self.weight.shape)
        return (taps * self.weight).sum(dim=2) + self.bias

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        weight = self.weight.new_empty(self.inputs, 1, self.kernel)
        yield f"{name}.conv.weight", weight
        self.weight.copy_(weight[:, 0].T)
        yield f"{name}.conv.bias", self.bias


class Upsampling(nn.Module):
    """Transposed convolution whose kernel is once or twice its stride.

    The outputs of an input depend on that input and, if the kernel is twice the stride, on the one
    before. This equals a causal convolution to `rate` times the channels, seen as a longer stream.
    Between calls it stores one input instead of an output overlap.
    """

    def __init__(self, inputs: int, outputs: int, rate: int, kernel: int) -> None:
        super().__init__()
        assert kernel in (rate, 2 * rate), (rate, kernel)
        self.outputs, self.rate = outputs, rate
        self.conv = ProductConvolution(inputs, rate * outputs, kernel // rate)

    def forward(self, x: Tensor, call: DecodeCall) -> Tensor:
        """[B, T, inputs] -> [B, T * rate, outputs]."""
        return self.conv(x, call).view(len(x), -1, self.outputs)

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        matrix, bias = self.conv.product.weight, _bias(self.conv.product)
        inputs, taps = self.conv.inputs, self.conv.kernel
        weight = matrix.new_empty(inputs, self.outputs, taps * self.rate)
        yield f"{name}.conv.weight", weight
        # The latest tap comes first.
        by_tap = weight.view(inputs, self.outputs, taps, self.rate).flip(2)
        matrix.view(self.rate, self.outputs, taps, inputs).copy_(by_tap.permute(3, 1, 2, 0))
        yield f"{name}.conv.bias", bias[: self.outputs]
        bias.view(self.rate, -1).copy_(bias[: self.outputs].clone())


class ResidualUnit(nn.Module):
    """Dilated convolution and 1x1 convolution, each after an activation, added to the input."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.activation = SnakeBeta(channels)
        self.conv = causal_convolution(channels, channels, dilation=dilation)
        self.mix_activation = SnakeBeta(channels)
        self.mix = Linear(channels, channels, bias=True)

    def forward(self, x: Tensor, call: DecodeCall) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        return self.mix(self.mix_activation(self.conv(self.activation(x), call))).add_(x)

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        yield from self.activation.weights(f"{name}.act1")
        yield from self.conv.weights(f"{name}.conv1")
        yield from self.mix_activation.weights(f"{name}.act2")
        yield f"{name}.conv2.conv.weight", self.mix.weight[:, :, None]
        yield f"{name}.conv2.conv.bias", _bias(self.mix)


class UpsamplingBlock(nn.Module):
    """Activation, upsampling to half the channels, then three residual units."""

    def __init__(self, inputs: int, rate: int) -> None:
        super().__init__()
        outputs = inputs // 2
        self.activation = SnakeBeta(inputs)
        self.upsampling = Upsampling(inputs, outputs, rate, 2 * rate)
        self.units = nn.ModuleList([ResidualUnit(outputs, dilation) for dilation in DILATIONS])

    def forward(self, x: Tensor, call: DecodeCall) -> Tensor:
        """[B, T, C] -> [B, T * rate, C / 2]."""
        x = self.upsampling(self.activation(x), call)
        for unit in self.units:
            x = unit(x, call)
        return x

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        yield from self.activation.weights(f"{name}.block.0")
        yield from self.upsampling.weights(f"{name}.block.1")
        for number, unit in enumerate(self.units, start=2):
            yield from unit.weights(f"{name}.block.{number}")  # type: ignore[operator]


class ConvNeXt(nn.Module):
    """Depthwise convolution, then an MLP across channels, added to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = DepthwiseConvolution(channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up = Linear(channels, 4 * channels, bias=True)
        self.down = Linear(4 * channels, channels, bias=True)

    def forward(self, x: Tensor, call: DecodeCall) -> Tensor:
        """[B, T, C] -> [B, T, C]."""
        return x + self.down(F.gelu(self.up(self.norm(self.conv(x, call)))))

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors; folds the checkpoint's `gamma` into `down`."""
        yield from self.conv.weights(f"{name}.dwconv")
        yield f"{name}.norm.weight", self.norm.weight
        yield f"{name}.norm.bias", self.norm.bias
        yield from self.up.weights(f"{name}.pwconv1")
        yield from self.down.weights(f"{name}.pwconv2")
        gamma = torch.empty_like(_bias(self.down), dtype=torch.float32)
        yield f"{name}.gamma", gamma
        self.down.weight.mul_(gamma[:, None])
        _bias(self.down).mul_(gamma)


class Codebooks(nn.Module):
    """Embeds codes: the semantic codebook 0, and the sum of the acoustic codebooks."""

    def __init__(self, config: CodecDecoderConfig) -> None:
        super().__init__()
        self.books, self.size = config.num_quantizers, config.codebook_size
        width = config.codebook_dim // 2
        table = torch.empty(self.books * self.size, width)
        self.table = nn.Parameter(table, requires_grad=False)
        self.projection = Linear(2 * width, config.codebook_dim)
        self.first_rows = nn.Buffer(torch.arange(self.books) * self.size)

    def forward(self, codes: Tensor) -> Tensor:
        """[B, K, F] int64 -> [B, F, codebook_dim]."""
        entries = F.embedding(codes.transpose(1, 2) + self.first_rows, self.table)  # [B, F, K, D]
        summed = torch.cat((entries[:, :, 0], entries[:, :, 1:].sum(dim=2)), dim=-1)
        return self.projection(summed)

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        halves = self.projection.weight.chunk(2, dim=1)
        for part, half in zip(("rvq_first", "rvq_rest"), halves, strict=True):
            weight = half.new_empty(*half.shape, 1)
            yield f"{name}.{part}.output_proj.weight", weight
            half.copy_(weight[:, :, 0])
        for book, entries in enumerate(self.table.view(self.books, self.size, -1)):
            place = "rvq_first.vq.layers.0" if book == 0 else f"rvq_rest.vq.layers.{book - 1}"
            yield from _averages(f"{name}.{place}._codebook", entries)


def _averages(name: str, entries: Tensor) -> Weights:
    """Read a codebook, stored as the sum of embeddings per code and their number."""
    usage = entries.new_empty(len(entries), dtype=torch.float32)
    yield f"{name}.cluster_usage", usage
    total = torch.empty_like(entries, dtype=torch.float32)
    yield f"{name}.embedding_sum", total
    entries.copy_(total / usage.clamp(min=1e-5)[:, None])


def _bias(linear: Linear) -> Tensor:
    assert linear.bias is not None
    return linear.bias
