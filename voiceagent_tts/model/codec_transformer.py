"""Transformer of the codec's decoder: attention over a window of frames, and MLPs.

Keys and values of earlier frames come from a `DecodeCall`. The operations between the matrix
products are PyTorch's, or fused ones after `CodecTransformer.fuse`. Layer scales are folded into
the weights.

Source: qwen-tts 0.1.1, `Qwen3TTSTokenizerV2Decoder`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from voiceagent_tts.model.attention import attend_sdpa
from voiceagent_tts.model.codec_state import DecodeCall
from voiceagent_tts.model.config import CodecDecoderConfig
from voiceagent_tts.model.layers import (
    MLP,
    Linear,
    Operations,
    RMSNorm,
    Rotation,
    Weights,
    inverse_frequencies,
    rotation,
)

AttendWindow = Callable[[Tensor, int, Rotation, DecodeCall, int], Tensor]
"""Function from heads ([B, F, H + 2 Hkv, D]: queries, keys, values), the number of queries H, the
rotation of the frames, the call and the layer's number to [B, F, H, D]. It stores keys and values
in the call's state."""


def attend_window(
    heads: Tensor, queries: int, rotated: Rotation, call: DecodeCall, layer: int
) -> Tensor:
    """Attend with PyTorch to the window of each frame; see `AttendWindow`."""
    groups = (heads.shape[2] - queries) // 2
    asking, keys, values = heads.split((queries, groups, groups), dim=2)
    seen = call.extend(layer, rotated.apply(keys), values)
    return attend_sdpa(rotated.apply(asking), seen)


class CodecLayer(nn.Module):
    """Attention over a window of frames, and an MLP; each is added to the residual stream."""

    def __init__(self, config: CodecDecoderConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.attention_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.qkv = Linear(config.hidden_size, (self.heads + 2 * self.groups) * self.head_dim)
        self.out = Linear(self.heads * self.head_dim, config.hidden_size)
        self.mlp_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)  # pyright: ignore[reportArgumentType]  # has the sizes that it reads

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        yield from self.attention_norm.weights(f"{name}.input_layernorm")
        sizes = [n * self.head_dim for n in (self.heads, self.groups, self.groups)]
        parts = self.qkv.weight.split(sizes)
        yield from zip(
            (f"{name}.self_attn.{part}_proj.weight" for part in "qkv"), parts, strict=True
        )
        yield from self.out.weights(f"{name}.self_attn.o_proj")
        yield from _scaled(f"{name}.self_attn_layer_scale", self.out)
        yield from self.mlp_norm.weights(f"{name}.post_attention_layernorm")
        yield from self.mlp.weights(f"{name}.mlp")
        yield from _scaled(f"{name}.mlp_layer_scale", self.mlp.down)


def _scaled(name: str, linear: Linear) -> Weights:
    scale = linear.weight.new_empty(len(linear.weight), dtype=torch.float32)
    yield f"{name}.scale", scale
    linear.weight.mul_(scale[:, None])


class CodecTransformer(nn.Module):
    """Transformer of the decoder: layers between two projections."""

    def __init__(self, config: CodecDecoderConfig) -> None:
        super().__init__()
        self.input = Linear(config.latent_dim, config.hidden_size, bias=True)
        self.layers = nn.ModuleList([CodecLayer(config) for _ in range(config.num_hidden_layers)])
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.output = Linear(config.hidden_size, config.latent_dim, bias=True)
        self.frequencies = nn.Buffer(inverse_frequencies(config.head_dim, config.rope_theta))
        self._operations = Operations()
        self._attend: AttendWindow = attend_window

    def fuse(self) -> None:
        """Use one Triton launch between two matrix products from now on."""
        from voiceagent_tts.model import fused, fused_window  # Triton is optional

        self._operations, self._attend = fused.FusedOperations(), fused_window.attend_window

    def forward(self, x: Tensor, call: DecodeCall) -> Tensor:
        """[B, F, latent] -> [B, F, latent]."""
        x, added = self.input(x), None
        rotated = rotation(call.positions, self.frequencies, x.dtype)
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, CodecLayer)
            x, normed = self._operations.add_norm(x, added, layer.attention_norm)
            heads = layer.qkv(normed).unflatten(-1, (-1, layer.head_dim))
            attended = self._attend(heads, layer.heads, rotated, call, number)
            attended = layer.out(attended.flatten(2))
            x, normed = self._operations.add_norm(x, attended, layer.mlp_norm)
            added = layer.mlp.down(self._operations.gate(layer.mlp.gate_up(normed)))
        return self.output(self._operations.add_norm(x, added, self.norm)[1])

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        yield from self.input.weights(f"{name}.input_proj")
        for number, layer in enumerate(self.layers):
            yield from layer.weights(f"{name}.layers.{number}")  # type: ignore[operator]
        yield from self.norm.weights(f"{name}.norm")
        yield from self.output.weights(f"{name}.output_proj")
