"""The Qwen3 decoder that talker and code predictor are both made of.

Rounding is that of the official package, which the quality of sixteen chained codebooks depends
on: norms and rotary angles in float32, rounded to the model's precision before the norm's weight
and before the rotation. All that lies between the matrices is left to `Operations`: the plain ones
are here, the fused ones in `model/fused.py`. Knows neither text nor codes; what a pass remembers is
passed in as a `KVCache`, and its positions as rotary angles.

Source: Qwen3 (RMSNorm on heads, grouped queries, SiLU-gated MLP), as in qwen-tts 0.1.1.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from voiceagent_tts.model.config import TransformerConfig

Weights = Iterator[tuple[str, Tensor]]
"""Names of a checkpoint's tensors and the parts of ours that they fill."""

AttentionBackend = Literal["sdpa", "flash"]
Kernels = Literal["plain", "fused"]
"""Of all that lies between matrices: PyTorch's, or ours (`model/fused.py`)."""

_AMPERE, _HOPPER = 8, 9
"""Major numbers of what GPUs can."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What the queries of one layer's pass may look at.

    Attributes:
        keys: [B, S, Hkv, D].
        values: [B, S, Hkv, D].
        lengths: what the pass's last query sees of each row: [B] int32, or the same of all.
        mask: [B, 1, T, S] added to the scores; None: query t of T sees all but the last T - 1 - t.
    """

    keys: Tensor
    values: Tensor
    lengths: Tensor | int
    mask: Tensor | None = None


@dataclass(frozen=True, slots=True)
class PagedKeys:
    """The same in pages.

    Attributes:
        keys: [P, page, Hkv, D], of all pages.
        values: [P, page, Hkv, D].
        lengths: [B] int32, as of `Keys`.
        mask: [B, 1, T, S], as of `Keys`.
        table: [B, n] int32, the pages that hold each row's positions in order.
        seen: [B, S] int64, where they lie among the positions of all pages.
    """

    keys: Tensor
    values: Tensor
    lengths: Tensor
    mask: Tensor
    table: Tensor
    seen: Tensor

    def gather(self) -> Keys:
        """Each row's keys and values side by side: a copy."""
        keys, values = (self._of_rows(held) for held in (self.keys, self.values))
        return Keys(keys, values, self.lengths, self.mask)

    def _of_rows(self, held: Tensor) -> Tensor:
        taken = held.flatten(0, 1).index_select(0, self.seen.flatten())
        return taken.view(*self.seen.shape, *held.shape[2:])


@dataclass(frozen=True, slots=True)
class Pages:
    """Where one layer's keys and values of a pass belong, behind those of the positions before.

    Attributes:
        keys: [P, page, Hkv, D], of all pages.
        values: [P, page, Hkv, D].
        table: [B, n] int64, the pages that hold each row's positions in order.
        positions: [B, T] int64, consecutive.
    """

    keys: Tensor
    values: Tensor
    table: Tensor
    positions: Tensor


class KVCache(Protocol):
    """The keys and values of earlier positions, for one pass through all layers."""

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> Keys | PagedKeys:
        """Remember this pass's keys and values ([B, T, Hkv, D]); return all that it may see."""
        ...

    def pages(self, layer: int) -> Pages:
        """Where whoever computes attention writes them itself; nothing is remembered yet."""
        ...


Attend = Callable[[Tensor, Keys | PagedKeys], Tensor]
"""Queries [B, T, H, D] and what they may see -> [B, T, H, D]."""


def attention(backend: AttentionBackend, dtype: torch.dtype) -> Attend:
    """The function that computes attention.

    Args:
        backend: `sdpa`, which every machine has, or `flash`: flash-attn, version 3 where the
            package is installed and the GPU is Hopper's.
        dtype: the precision of the model.

    Raises:
        ValueError: flash-attn is asked for and cannot be used here, or the precision is not a half
            one.
    """
    if backend == "sdpa":
        # cuDNN's kernels, PyTorch's first choice on Hopper, are planned anew for every number of
        # rows and keys: tens of milliseconds for each of a frame's fifteen steps, in every size.
        torch.backends.cuda.enable_cudnn_sdp(False)
        return attend_sdpa
    if dtype not in (torch.bfloat16, torch.float16):
        raise ValueError(f"flash-attn computes in bfloat16 or float16, not in {dtype}; use sdpa")
    return _flash()


def attend_sdpa(queries: Tensor, seen: Keys | PagedKeys) -> Tensor:
    """Attention through PyTorch; pages are gathered first."""
    if isinstance(seen, PagedKeys):
        seen = seen.gather()
    rows, steps, heads, width = queries.shape
    groups = seen.keys.shape[2]
    keys, values = seen.keys.transpose(1, 2), seen.values.transpose(1, 2)  # [B, Hkv, S, D]
    if seen.mask is None and steps > 1:
        attended = F.scaled_dot_product_attention(
            queries.transpose(1, 2), keys, values, is_causal=True, enable_gqa=groups != heads
        )
        return attended.transpose(1, 2)
    # The heads of a group stand as more queries of one head: no kernel has to copy their keys.
    share = heads // groups
    grouped = queries.view(rows, steps, groups, share, width).permute(0, 2, 3, 1, 4)
    mask = seen.mask
    if mask is not None and steps > 1 and share > 1:
        mask = mask.repeat(1, 1, share, 1)
    attended = F.scaled_dot_product_attention(
        grouped.reshape(rows, groups, share * steps, width), keys, values, attn_mask=mask
    )
    attended = attended.view(rows, groups, share, steps, width).permute(0, 3, 1, 2, 4)
    return attended.reshape(rows, steps, heads, width)


def _flash() -> Attend:
    for package, table_name in _flash_packages():
        try:
            with_cache = importlib.import_module(package).flash_attn_with_kvcache
        except ImportError:
            continue
        return _FlashAttention(with_cache, table_name)
    raise ValueError(
        "flash-attn is asked for, and none is installed that runs on this machine: install extra "
        "`flash` for a GPU from Ampere on, or use sdpa"
    )


def _flash_packages() -> Iterator[tuple[str, str]]:
    """Those whose kernels this GPU has, the best first, and what they call the table of pages."""
    major = torch.cuda.get_device_capability()[0] if torch.cuda.is_available() else 0
    if major == _HOPPER:
        yield "flash_attn_interface", "page_table"
    if major >= _AMPERE:
        yield "flash_attn", "block_table"


class _FlashAttention:
    """flash-attn, which reads pages where they lie.

    Args:
        with_cache: its `flash_attn_with_kvcache`.
        table_name: of the argument that takes the table of pages.
    """

    def __init__(self, with_cache: Callable[..., Tensor], table_name: str) -> None:
        self._with_cache, self._table_name = with_cache, table_name

    def __call__(self, queries: Tensor, seen: Keys | PagedKeys) -> Tensor:
        pages = {self._table_name: seen.table} if isinstance(seen, PagedKeys) else {}
        return self._with_cache(
            queries, seen.keys, seen.values, cache_seqlens=seen.lengths, causal=True, **pages
        )


class Linear(nn.Module):
    """`x @ weight.T`, plus the bias where there is one; its weights are not initialised."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs), requires_grad=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return F.linear(x, self.weight, self.bias)

    def weights(self, name: str) -> Weights:
        """This module's tensors under the checkpoint's `name`."""
        yield f"{name}.weight", self.weight
        if self.bias is not None:
            yield f"{name}.bias", self.bias


class RMSNorm(nn.Module):
    """Root-mean-square norm: at least float32 inside, rounded before the weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Norm over the last dimension."""
        if x.dtype.itemsize >= torch.float32.itemsize:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        # Without a weight PyTorch's norm of half precisions is float32 inside and rounded once.
        return self.weight * F.rms_norm(x, self.weight.shape, eps=self.eps)

    def weights(self, name: str) -> Weights:
        """This module's tensors under the checkpoint's `name`."""
        yield f"{name}.weight", self.weight


class HeadNorm(nn.Module):
    """The norms of queries and keys, side by side: one weight for all heads of each."""

    def __init__(self, queries: int, keys: int, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(queries + keys, width), requires_grad=False)
        self.queries = queries
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., H + Hkv, D], queries first; normed over D, rounded as `RMSNorm` rounds."""
        return self.weight * F.rms_norm(x, x.shape[-1:], eps=self.eps)

    def weights(self, name: str) -> Weights:
        """This module's tensors under the checkpoint's `name`."""
        parts = (self.weight[: self.queries], self.weight[self.queries :])
        for part, heads in zip("qk", parts, strict=True):
            yield f"{name}.{part}_norm.weight", heads[0]
            heads.copy_(heads[0].clone())


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rotary angles of a pass's positions, each [B, T, 1, D] in the model's precision.

    The first half of `sin` is negated, so that nothing else is.
    """

    cos: Tensor
    sin: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Rotate queries or keys [B, T, H, D]; halves of a head are the two components."""
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((second, first), dim=-1) * self.sin


def inverse_frequencies(head_dim: int, theta: float) -> Tensor:
    """[D / 2] float32: radians a position adds to each component of a head."""
    exponents = torch.arange(0, head_dim, 2).float() / head_dim
    return 1.0 / theta**exponents


def rotation(positions: Tensor, frequencies: Tensor, dtype: torch.dtype) -> Rotation:
    """Rotary angles of `positions` [B, T], computed in float32 and rounded to `dtype`."""
    angles = positions[..., None, None].float() * frequencies  # [B, T, 1, D / 2]
    cos, sin = angles.cos(), angles.sin()
    return Rotation(
        torch.cat((cos, cos), dim=-1).to(dtype), torch.cat((-sin, sin), dim=-1).to(dtype)
    )


class Operations(Protocol):
    """What a layer computes between its matrices."""

    def add_norm(self, x: Tensor, added: Tensor | None, norm: RMSNorm) -> tuple[Tensor, Tensor]:
        """The stream with `added` ([..., hidden] both), and the norm of that."""
        ...

    def attend(
        self, heads: Tensor, norm: HeadNorm, rotated: Rotation, memory: KVCache, layer: int
    ) -> Tensor:
        """Norm and rotate queries and keys, remember keys and values, and attend.

        Args:
            heads: [B, T, H + 2 Hkv, D]: queries, keys, values.
            norm: of queries and keys.
            rotated: their rotary angles.
            memory: takes this pass's keys and values.
            layer: number of the layer.

        Returns:
            [B, T, H, D].
        """
        ...

    def gate(self, gate_up: Tensor) -> Tensor:
        """`silu(gate) * up`; [..., 2 intermediate], gate first -> [..., intermediate]."""
        ...


class PlainOperations:
    """Each operation by PyTorch's.

    Args:
        attend: how attention itself is computed.
    """

    def __init__(self, attend: Attend) -> None:
        self._attend = attend

    def add_norm(self, x: Tensor, added: Tensor | None, norm: RMSNorm) -> tuple[Tensor, Tensor]:
        """See `Operations`."""
        if added is not None:
            x = x + added
        return x, norm(x)

    def attend(
        self, heads: Tensor, norm: HeadNorm, rotated: Rotation, memory: KVCache, layer: int
    ) -> Tensor:
        """See `Operations`."""
        groups = heads.shape[2] - len(norm.weight)
        turned, values = heads.split((len(norm.weight), groups), dim=2)
        turned = rotated.apply(norm(turned))
        queries, keys = turned.split((norm.queries, groups), dim=2)
        return self._attend(queries, memory.extend(layer, keys, values))

    def gate(self, gate_up: Tensor) -> Tensor:
        """See `Operations`."""
        return open_gate(gate_up)


def open_gate(gate_up: Tensor) -> Tensor:
    """`silu(gate) * up`; [..., 2 intermediate], gate first -> [..., intermediate]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


class Attention(nn.Module):
    """Grouped-query attention with normed heads; one matrix makes queries, keys and values."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.heads = config.num_attention_heads
        self.groups = config.num_key_value_heads
        self.qkv = Linear(config.hidden_size, (self.heads + 2 * self.groups) * self.head_dim)
        self.out = Linear(self.heads * self.head_dim, config.hidden_size)
        self.norm = HeadNorm(self.heads, self.groups, self.head_dim, config.rms_norm_eps)

    def forward(
        self, x: Tensor, rotated: Rotation, memory: KVCache, layer: int, operations: Operations
    ) -> Tensor:
        """[B, T, hidden] -> [B, T, hidden]; `memory` takes the keys and values."""
        heads = self.qkv(x).view(*x.shape[:2], -1, self.head_dim)
        attended = operations.attend(heads, self.norm, rotated, memory, layer)
        return self.out(attended.flatten(2))

    def weights(self, name: str) -> Weights:
        """This module's tensors under the checkpoint's `name`."""
        sizes = [n * self.head_dim for n in (self.heads, self.groups, self.groups)]
        parts = self.qkv.weight.split(sizes)
        yield from zip((f"{name}.{part}_proj.weight" for part in "qkv"), parts, strict=True)
        yield from self.out.weights(f"{name}.o_proj")
        yield from self.norm.weights(name)


class MLP(nn.Module):
    """`down(silu(gate(x)) * up(x))`; one matrix makes gate and up."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gate_up = Linear(config.hidden_size, 2 * config.intermediate_size)
        self.down = Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor, gate: Callable[[Tensor], Tensor] = open_gate) -> Tensor:
        """[..., hidden] -> [..., hidden]; `gate` is that of `Operations`."""
        return self.down(gate(self.gate_up(x)))

    def weights(self, name: str) -> Weights:
        """This module's tensors under the checkpoint's `name`."""
        gate, up = self.gate_up.weight.chunk(2)
        yield f"{name}.gate_proj.weight", gate
        yield f"{name}.up_proj.weight", up
        yield from self.down.weights(f"{name}.down_proj")


class Layer(nn.Module):
    """Attention and MLP, each on the norm of the stream and added to it."""

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
        memory: KVCache,
        layer: int,
        operations: Operations,
    ) -> tuple[Tensor, Tensor]:
        """The stream, and what is still to be added to it: of the last layer, and of this one.

        Whoever norms the stream next adds it: one operation does both.
        """
        x, normed = operations.add_norm(x, added, self.attention_norm)
        attended = self.attention(normed, rotated, memory, layer, operations)
        x, normed = operations.add_norm(x, attended, self.mlp_norm)
        return x, self.mlp(normed, operations.gate)

    def weights(self, name: str) -> Weights:
        """This module's tensors under the checkpoint's `name`."""
        yield from self.attention_norm.weights(f"{name}.input_layernorm")
        yield from self.attention.weights(f"{name}.self_attn")
        yield from self.mlp_norm.weights(f"{name}.post_attention_layernorm")
        yield from self.mlp.weights(f"{name}.mlp")


class Transformer(nn.Module):
    """Layers and a last norm; embeddings come in, hidden states come out.

    Args:
        config: sizes.
        operations: that layers are made of beside their matrices.
    """

    def __init__(self, config: TransformerConfig, operations: Operations) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.num_hidden_layers)])
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self._operations = operations

    def forward(self, x: Tensor, rotated: Rotation, memory: KVCache) -> Tensor:
        """One pass over new positions.

        Args:
            x: [B, T, hidden] embeddings of the new positions.
            rotated: their rotary angles.
            memory: of the earlier positions; takes the new ones in.

        Returns:
            [B, T, hidden], normed.
        """
        added = None
        for number, layer in enumerate(self.layers):
            x, added = layer(x, added, rotated, memory, number, self._operations)
        return self._operations.add_norm(x, added, self.norm)[1]

    def weights(self, name: str) -> Weights:
        """This module's tensors under the checkpoint's `name`."""
        for number, layer in enumerate(self.layers):
            yield from layer.weights(f"{name}.layers.{number}")  # type: ignore[operator]
        yield from self.norm.weights(f"{name}.norm")
