"""Decode codes with a plain version of the codec's decoder: all frames at once, no caches.

`CodecDecoder` must agree with it; nothing is fused, folded or rearranged here. In float32 it does
the operations of the official package in their order and on their shapes, so with an equal PyTorch
version, processor type and number of threads its samples are identical. It has no streams or rows.

Source: qwen-tts 0.1.1, `Qwen3TTSTokenizerV2Decoder`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from voiceagent_tts.model.checkpoint import open_weights
from voiceagent_tts.model.config import CODEC_FOLDER, CodecDecoderConfig, read_codec_config


@dataclass(frozen=True)
class PlainCodec:
    """The decoder's weights by their names in the checkpoint.

    Attributes:
        config: configuration of the checkpoint.
        weights: float32 tensors; values that depend only on weights are computed in float32 too.
        dtype: precision of the arithmetic with samples.
    """

    config: CodecDecoderConfig
    weights: Mapping[str, Tensor]
    dtype: torch.dtype = torch.float32

    def decode(self, codes: Tensor) -> Tensor:
        """Decode the codes of a whole text.

        Args:
            codes: [1, K, F] int64.

        Returns:
            [1, F * 1920] in [-1, 1], 24 kHz, in the precision of the arithmetic.
        """
        x = self._conv("decoder.pre_conv", self._quantized(codes))
        x = self._transformer(x.transpose(1, 2)).transpose(1, 2)
        for stage, ratio in enumerate(self.config.upsampling_ratios):
            x = self._upsample(f"decoder.upsample.{stage}.0", x, ratio)
            x = self._convnext(f"decoder.upsample.{stage}.1", x)
        x = self._conv("decoder.decoder.0", x)
        for block, rate in enumerate(self.config.upsample_rates, start=1):
            x = self._block(f"decoder.decoder.{block}.block", x, rate)
        after = len(self.config.upsample_rates) + 1
        x = self._conv(f"decoder.decoder.{after + 1}", self._snake(f"decoder.decoder.{after}", x))
        return x[:, 0].clamp(-1, 1)

    def _weight(self, name: str) -> Tensor:
        return self.weights[name].to(self.dtype)

    def _quantized(self, codes: Tensor) -> Tensor:
        first = self._summed("rvq_first", codes[:, :1])
        return first + self._summed("rvq_rest", codes[:, 1:])

    def _summed(self, part: str, codes: Tensor) -> Tensor:
        total = torch.zeros((), dtype=self.dtype)
        for layer, row in enumerate(codes.transpose(0, 1)):
            name = f"decoder.quantizer.{part}.vq.layers.{layer}._codebook"
            usage = self.weights[f"{name}.cluster_usage"].clamp(min=1e-5)
            table = self.weights[f"{name}.embedding_sum"] / usage[:, None]
            total = total + F.embedding(row, table).to(self.dtype).transpose(1, 2)
        return F.conv1d(total, self._weight(f"decoder.quantizer.{part}.output_proj.weight"))

    def _transformer(self, x: Tensor) -> Tensor:
        name = "decoder.pre_transformer"
        x = self._linear(f"{name}.input_proj", x)
        for layer in range(self.config.num_hidden_layers):
            x = self._layer(f"{name}.layers.{layer}", x)
        return self._linear(f"{name}.output_proj", self._norm(f"{name}.norm", x))

    def _layer(self, name: str, x: Tensor) -> Tensor:
        attended = self._attend(f"{name}.self_attn", self._norm(f"{name}.input_layernorm", x))
        x = x + self._weight(f"{name}.self_attn_layer_scale.scale") * attended
        y = self._norm(f"{name}.post_attention_layernorm", x)
        gated = F.silu(self._linear(f"{name}.mlp.gate_proj", y))
        y = self._linear(f"{name}.mlp.down_proj", gated * self._linear(f"{name}.mlp.up_proj", y))
        return x + self._weight(f"{name}.mlp_layer_scale.scale") * y

    def _attend(self, name: str, x: Tensor) -> Tensor:
        frames, width = x.shape[1], self.config.head_dim
        queries, keys, values = (
            self._linear(f"{name}.{part}_proj", x).view(1, frames, -1, width).transpose(1, 2)
            for part in "qkv"
        )
        groups = self.config.num_attention_heads // self.config.num_key_value_heads
        keys, values = (t.repeat_interleave(groups, dim=1) for t in (self._rotate(keys), values))
        age = torch.arange(frames)[:, None] - torch.arange(frames)
        is_seen = (age >= 0) & (age < self.config.sliding_window)
        attended = F.scaled_dot_product_attention(
            self._rotate(queries), keys, values, attn_mask=is_seen
        )
        return self._linear(f"{name}.o_proj", attended.transpose(1, 2).flatten(2))

    def _rotate(self, x: Tensor) -> Tensor:
        width = x.shape[-1]
        exponents = torch.arange(0, width, 2).float() / width
        angles = torch.arange(x.shape[2])[:, None] * (1.0 / self.config.rope_theta**exponents)
        angles = torch.cat((angles, angles), dim=-1)
        turned = torch.cat((-x[..., width // 2 :], x[..., : width // 2]), dim=-1)
        return x * angles.cos().to(self.dtype) + turned * angles.sin().to(self.dtype)

    def _convnext(self, name: str, x: Tensor) -> Tensor:
        y = self._conv(f"{name}.dwconv", x, groups=x.shape[1]).transpose(1, 2)
        norm = self._weight(f"{name}.norm.weight"), self._weight(f"{name}.norm.bias")
        y = F.layer_norm(y, y.shape[-1:], *norm, eps=1e-6)
        y = self._linear(f"{name}.pwconv2", F.gelu(self._linear(f"{name}.pwconv1", y)))
        return x + (self._weight(f"{name}.gamma") * y).transpose(1, 2)

    def _block(self, name: str, x: Tensor, rate: int) -> Tensor:
        x = self._upsample(f"{name}.1", self._snake(f"{name}.0", x), rate)
        for unit, dilation in enumerate((1, 3, 9), start=2):
            y = self._snake(f"{name}.{unit}.act1", x)
            y = self._conv(f"{name}.{unit}.conv1", y, dilation)
            x = self._conv(f"{name}.{unit}.conv2", self._snake(f"{name}.{unit}.act2", y)) + x
        return x

    def _snake(self, name: str, x: Tensor) -> Tensor:
        alpha, beta = (self.weights[f"{name}.{part}"].exp()[:, None] for part in ("alpha", "beta"))
        inverse_beta = (1.0 / (beta + 1e-9)).to(self.dtype)
        return x + inverse_beta * torch.sin(x * alpha.to(self.dtype)) ** 2

    def _conv(self, name: str, x: Tensor, dilation: int = 1, groups: int = 1) -> Tensor:
        weight, bias = self._weight(f"{name}.conv.weight"), self._weight(f"{name}.conv.bias")
        padded = F.pad(x, ((weight.shape[-1] - 1) * dilation, 0))
        return F.conv1d(padded, weight, bias, dilation=dilation, groups=groups)

    def _upsample(self, name: str, x: Tensor, rate: int) -> Tensor:
        weight, bias = self._weight(f"{name}.conv.weight"), self._weight(f"{name}.conv.bias")
        x = F.conv_transpose1d(x, weight, bias, stride=rate)[..., : x.shape[-1] * rate]
        return x.contiguous()

    def _norm(self, name: str, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return self._weight(f"{name}.weight") * (x * scale)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        bias = f"{name}.bias"
        return F.linear(
            x, self._weight(f"{name}.weight"), self._weight(bias) if bias in self.weights else None
        )


def load_plain_codec(folder: Path) -> PlainCodec:
    """Load the decoder of a model's codec.

    Args:
        folder: folder of the model.

    Raises:
        CheckpointError: a file of the codec is missing or partial.
    """
    folder = folder / CODEC_FOLDER
    weights: dict[str, Tensor] = {}
    for name, stored in open_weights(folder).items():
        if name.startswith("decoder."):
            weights[name] = torch.empty(stored.shape)
            stored.read_into(weights[name])
    return PlainCodec(read_codec_config(folder).decoder_config, weights)
