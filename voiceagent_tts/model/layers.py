"""The Qwen3 transformer decoder, used by both the talker and the code predictor.

Rounding follows the official package, because errors accumulate over sixteen chained codebooks:
norms and rotary angles are computed in float32 and rounded to the model's precision before they are
multiplied by the norm's weight or applied as a rotation. Everything between the matrix products
goes through `Operations`: PyTorch's are here, fused kernels in `model/fused.py`. The caller passes
earlier keys and values as a `KVCache` and positions as rotary angles.

Source: Qwen3 (RMSNorm on heads, grouped queries, SiLU-gated MLP), as in qwen-tts 0.1.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from voiceagent_tts.model.attention import Attend, KVCache, attend_sdpa
from voiceagent_tts.model.config import TransformerConfig

Weights = Iterator[tuple[str, Tensor]]
"""Pairs of a tensor name in the checkpoint and the part of our parameter that it fills."""

Kernels = Literal["plain", "fused"]
"""Implementation of everything between matrix products, and of the products of a single row:
PyTorch or Triton (`model/fused.py`)."""


class Linear(nn.Module):
    """Computes `x @ weight.T` plus an optional bias. Its weights start uninitialised."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs), requires_grad=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return F.linear(x, self.weight, self.bias)

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        yield f"{name}.weight", self.weight
        if self.bias is not None:
            yield f"{name}.bias", self.bias


class RMSNorm(nn.Module):
    """Root-mean-square norm, computed in float32 or wider and rounded before the weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise over the last dimension."""
        if x.dtype.itemsize >= torch.float32.itemsize:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        # Without a weight, PyTorch computes half-precision norms in float32 and rounds once.
        return self.weight * F.rms_norm(x, self.weight.shape, eps=self.eps)

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        yield f"{name}.weight", self.weight


class HeadNorm(nn.Module):
    """Norms of query and key heads in one operation; all heads of a kind share one weight."""

    def __init__(self, queries: int, keys: int, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(queries + keys, width), requires_grad=False)
        self.queries = queries
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [..., H + Hkv, D], queries first, over D; rounds as `RMSNorm` does."""
        return self.weight * F.rms_norm(x, x.shape[-1:], eps=self.eps)

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        parts = (self.weight[: self.queries], self.weight[self.queries :])
        for part, heads in zip("qk", parts, strict=True):
            yield f"{name}.{part}_norm.weight", heads[0]
            heads.copy_(heads[0].clone())


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rotary embedding of a pass's positions, each [B, T, 1, D] in the model's precision.

    The first half of `sin` is already negated, so `apply` needs no sign change.
    """

    cos: Tensor
    sin: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Rotate queries or keys [B, T, H, D]; the halves of a head are the two components."""
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((second, first), dim=-1) * self.sin


def inverse_frequencies(head_dim: int, theta: float) -> Tensor:
    """Return [D / 2] float32: radians per position for each component of a head."""
    exponents = torch.arange(0, head_dim, 2).float() / head_dim
    return 1.0 / theta**exponents


def rotation(positions: Tensor, frequencies: Tensor, dtype: torch.dtype) -> Rotation:
    """Return the rotation of `positions` [B, T], computed in float32 and rounded to `dtype`."""
    angles = positions[..., None, None].float() * frequencies  # [B, T, 1, D / 2]
    cos, sin = angles.cos(), angles.sin()
    return Rotation(
        torch.cat((cos, cos), dim=-1).to(dtype), torch.cat((-sin, sin), dim=-1).to(dtype)
    )


class Operations:
    """Operations of a layer by PyTorch.

    Args:
        attend: function that computes attention.
    """

    def __init__(self, attend: Attend = attend_sdpa) -> None:
        self._attend = attend

    def add_norm(self, x: Tensor, added: Tensor | None, norm: RMSNorm) -> tuple[Tensor, Tensor]:
        """Add `added` to the stream `x` ([..., hidden] both); return the sum and its norm."""
        if added is not None:
            x = x + added
        return x, norm(x)

    def attend(
        self, heads: Tensor, norm: HeadNorm, rotated: Rotation, cache: KVCache, layer: int
    ) -> Tensor:
        """Normalise and rotate queries and keys, store keys and values, and attend.

        heads: [B, T, H + 2 Hkv, D]: queries, keys, values. Returns [B, T, H, D].
        """
        groups = heads.shape[2] - len(norm.weight)
        turned, values = heads.split((len(norm.weight), groups), dim=2)
        turned = rotated.apply(norm(turned))
        queries, keys = turned.split((norm.queries, groups), dim=2)
        return self._attend(queries, cache.extend(layer, keys, values))

    def gate(self, gate_up: Tensor) -> Tensor:
        """Compute `silu(gate) * up`: [..., 2 intermediate], gate first -> [..., intermediate]."""
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    def product(self, x: Tensor, linear: Linear) -> Tensor:
        """Multiply [..., inputs] by the weight of `linear`, which has no bias."""
        return linear(x)


class Attention(nn.Module):
    """Grouped-query attention with normalised heads; one matrix for queries, keys and values."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.heads = config.num_attention_heads
        self.groups = config.num_key_value_heads
        self.qkv = Linear(config.hidden_size, (self.heads + 2 * self.groups) * self.head_dim)
        self.out = Linear(self.heads * self.head_dim, config.hidden_size)
        self.norm = HeadNorm(self.heads, self.groups, self.head_dim, config.rms_norm_eps)

    def forward(
        self, x: Tensor, rotated: Rotation, cache: KVCache, layer: int, operations: Operations
    ) -> Tensor:
        """[B, T, hidden] -> [B, T, hidden]; `cache` stores new keys and values."""
        heads = operations.product(x, self.qkv).view(*x.shape[:2], -1, self.head_dim)
        attended = operations.attend(heads, self.norm, rotated, cache, layer)
        return operations.product(attended.flatten(2), self.out)

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        sizes = [n * self.head_dim for n in (self.heads, self.groups, self.groups)]
        parts = self.qkv.weight.split(sizes)
        yield from zip((f"{name}.{part}_proj.weight" for part in "qkv"), parts, strict=True)
        yield from self.out.weights(f"{name}.o_proj")
        yield from self.norm.weights(name)


class MLP(nn.Module):
    """Weights of `down(silu(gate(x)) * up(x))`; one matrix computes gate and up."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gate_up = Linear(config.hidden_size, 2 * config.intermediate_size)
        self.down = Linear(config.intermediate_size, config.hidden_size)

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        gate, up = self.gate_up.weight.chunk(2)
        yield f"{name}.gate_proj.weight", gate
        yield f"{name}.up_proj.weight", up
        yield from self.down.weights(f"{name}.down_proj")


class Layer(nn.Module):
    """Attention and MLP; each reads the normed residual stream and is added to it."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attention = Attention(config)
        self.mlp_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(
        self,
        x: Tensor,
        added: Tensor | None,
        rotated: Rotation,
        cache: KVCache,
        layer: int,
        operations: Operations,
    ) -> tuple[Tensor, Tensor]:
        """Run the layer on [B, T, hidden], and return the stream and the MLP's output.

        That is added to the stream by the next norm, because one operation does both: `added` is
        the output of the previous layer's MLP, None for the first layer.
        """
        x, normed = operations.add_norm(x, added, self.attention_norm)
        attended = self.attention(normed, rotated, cache, layer, operations)
        x, normed = operations.add_norm(x, attended, self.mlp_norm)
        gated = operations.gate(operations.product(normed, self.mlp.gate_up))
        return x, operations.product(gated, self.mlp.down)

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        yield from self.attention_norm.weights(f"{name}.input_layernorm")
        yield from self.attention.weights(f"{name}.self_attn")
        yield from self.mlp_norm.weights(f"{name}.post_attention_layernorm")
        yield from self.mlp.weights(f"{name}.mlp")


class Transformer(nn.Module):
    """Layers and a final norm: embeddings in, hidden states out."""

    def __init__(self, config: TransformerConfig, operations: Operations) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.num_hidden_layers)])
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self._operations = operations

    def forward(self, x: Tensor, rotated: Rotation, cache: KVCache) -> Tensor:
        """Run one pass over new positions: [B, T, hidden] -> [B, T, hidden], normalised."""
        added = None
        for number, layer in enumerate(self.layers):
            x, added = layer(x, added, rotated, cache, number, self._operations)
        return self._operations.add_norm(x, added, self.norm)[1]

    def weights(self, name: str) -> Weights:
        """Yield this module's tensors under the checkpoint's `name`."""
        for number, layer in enumerate(self.layers):
            yield from layer.weights(f"{name}.layers.{number}")  # type: ignore[operator]
        yield from self.norm.weights(f"{name}.norm")
