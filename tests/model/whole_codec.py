"""The codec's decoder written plainly: all frames at once, padded, from the checkpoint's names.

The twin that `CodecDecoder` must agree with: the same mathematics with nothing fused, folded,
rearranged or remembered.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.config import CodecDecoderConfig


def fill_at_random(decoder: CodecDecoder, seed: int) -> dict[str, Tensor]:
    """Give every tensor of the decoder random values; return them by the checkpoint's names.

    They are so small that sound is neither clipped nor rounding amplified.
    """
    generator = torch.Generator().manual_seed(seed)
    filled = {}
    for name, tensor in decoder.weights():
        if name.endswith("cluster_usage"):
            values = torch.rand(tensor.shape, generator=generator) + 0.5
        else:
            inputs = math.prod(tensor.shape[1:]) if tensor.ndim > 1 else 25
            values = torch.randn(tensor.shape, generator=generator) * 0.5 / math.sqrt(inputs)
            if name.endswith("norm.weight"):
                values += 1.0
        tensor.copy_(values)
        filled[name] = values
    return filled


@dataclass(frozen=True)
class WholeCodec:
    """The decoder's weights by their names in the checkpoint."""

    config: CodecDecoderConfig
    weights: Mapping[str, Tensor]

    def decode(self, codes: Tensor) -> Tensor:
        """[1, K, F] -> [1, F * 1920]."""
        x = self.conv("decoder.pre_conv", self.quantized(codes))
        x = self.transformer(x.transpose(1, 2)).transpose(1, 2)
        for stage, ratio in enumerate(self.config.upsampling_ratios):
            x = self.upsample(f"decoder.upsample.{stage}.0", x, ratio)
            x = self.convnext(f"decoder.upsample.{stage}.1", x)
        x = self.conv("decoder.decoder.0", x)
        for block, rate in enumerate(self.config.upsample_rates, start=1):
            x = self.block(f"decoder.decoder.{block}.block", x, rate)
        after = len(self.config.upsample_rates) + 1
        x = self.conv(f"decoder.decoder.{after + 1}", self.snake(f"decoder.decoder.{after}", x))
        return x[:, 0].clamp(-1, 1)

    def quantized(self, codes: Tensor) -> Tensor:
        first = self.summed("rvq_first", codes[:, :1])
        return first + self.summed("rvq_rest", codes[:, 1:])

    def summed(self, part: str, codes: Tensor) -> Tensor:
        total = torch.zeros(())
        for layer, row in enumerate(codes.transpose(0, 1)):
            name = f"decoder.quantizer.{part}.vq.layers.{layer}._codebook"
            usage = self.weights[f"{name}.cluster_usage"].clamp(min=1e-5)
            total = total + (self.weights[f"{name}.embedding_sum"] / usage[:, None])[row]
        output = self.weights[f"decoder.quantizer.{part}.output_proj.weight"]
        return F.conv1d(total.transpose(1, 2), output)

    def transformer(self, x: Tensor) -> Tensor:
        name = "decoder.pre_transformer"
        x = self.linear(f"{name}.input_proj", x)
        for layer in range(self.config.num_hidden_layers):
            x = self.layer(f"{name}.layers.{layer}", x)
        return self.linear(f"{name}.output_proj", self.norm(f"{name}.norm", x))

    def layer(self, name: str, x: Tensor) -> Tensor:
        attended = self.attention(f"{name}.self_attn", self.norm(f"{name}.input_layernorm", x))
        x = x + self.weights[f"{name}.self_attn_layer_scale.scale"] * attended
        y = self.norm(f"{name}.post_attention_layernorm", x)
        gated = F.silu(self.linear(f"{name}.mlp.gate_proj", y))
        y = self.linear(f"{name}.mlp.down_proj", gated * self.linear(f"{name}.mlp.up_proj", y))
        return x + self.weights[f"{name}.mlp_layer_scale.scale"] * y

    def attention(self, name: str, x: Tensor) -> Tensor:
        frames, width = x.shape[1], self.config.head_dim
        queries, keys, values = (
            self.linear(f"{name}.{part}_proj", x).view(1, frames, -1, width).transpose(1, 2)
            for part in "qkv"
        )
        groups = self.config.num_attention_heads // self.config.num_key_value_heads
        keys, values = (t.repeat_interleave(groups, dim=1) for t in (self.rotate(keys), values))
        scores = self.rotate(queries) @ keys.transpose(2, 3) / math.sqrt(width)
        age = torch.arange(frames)[:, None] - torch.arange(frames)
        is_hidden = (age < 0) | (age >= self.config.sliding_window)
        attended = scores.masked_fill(is_hidden, float("-inf")).softmax(dim=-1) @ values
        return self.linear(f"{name}.o_proj", attended.transpose(1, 2).flatten(2))

    def rotate(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        frequencies = self.config.rope_theta ** (-torch.arange(half) / half)
        angles = torch.arange(x.shape[2])[:, None] * frequencies
        first, second = x[..., :half], x[..., half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def convnext(self, name: str, x: Tensor) -> Tensor:
        y = self.conv(f"{name}.dwconv", x, groups=x.shape[1]).transpose(1, 2)
        norm = self.weights[f"{name}.norm.weight"], self.weights[f"{name}.norm.bias"]
        y = F.layer_norm(y, y.shape[-1:], *norm, eps=1e-6)
        y = self.linear(f"{name}.pwconv2", F.gelu(self.linear(f"{name}.pwconv1", y)))
        return x + (self.weights[f"{name}.gamma"] * y).transpose(1, 2)

    def block(self, name: str, x: Tensor, rate: int) -> Tensor:
        x = self.upsample(f"{name}.1", self.snake(f"{name}.0", x), rate)
        for unit, dilation in enumerate((1, 3, 9), start=2):
            y = self.snake(f"{name}.{unit}.act1", x)
            y = self.conv(f"{name}.{unit}.conv1", y, dilation)
            x = x + self.conv(f"{name}.{unit}.conv2", self.snake(f"{name}.{unit}.act2", y))
        return x

    def snake(self, name: str, x: Tensor) -> Tensor:
        alpha, beta = (self.weights[f"{name}.{part}"].exp()[:, None] for part in ("alpha", "beta"))
        return x + torch.sin(x * alpha) ** 2 / (beta + 1e-9)

    def conv(self, name: str, x: Tensor, dilation: int = 1, groups: int = 1) -> Tensor:
        weight, bias = self.weights[f"{name}.conv.weight"], self.weights[f"{name}.conv.bias"]
        padded = F.pad(x, ((weight.shape[-1] - 1) * dilation, 0))
        return F.conv1d(padded, weight, bias, dilation=dilation, groups=groups)

    def upsample(self, name: str, x: Tensor, rate: int) -> Tensor:
        weight, bias = self.weights[f"{name}.conv.weight"], self.weights[f"{name}.conv.bias"]
        return F.conv_transpose1d(x, weight, bias, stride=rate)[..., : x.shape[-1] * rate]

    def norm(self, name: str, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return self.weights[f"{name}.weight"] * x * scale

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))
