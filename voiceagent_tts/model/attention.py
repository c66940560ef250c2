"""Attention of the talker and the code predictor, and the key-value cache interface it reads.

Shapes: B rows, T new positions, S visible positions, H query heads, Hkv key and value heads, D
numbers per head. `KVCache` returns what a pass may see.
"""

from dataclasses import dataclass
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys and values that the queries of one layer may attend to.

    Attributes:
        keys: [B, S, Hkv, D].
        values: [B, S, Hkv, D].
        mask: [B, 1, T, S], added to the scores. None is the causal mask: query t of T sees all
            but the last T - 1 - t positions.
    """

    keys: Tensor
    values: Tensor
    mask: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Pages:
    """Destination of the keys and values that one layer computes in a pass.

    Attributes:
        keys: [P, page, Hkv, D], all pages; written in place.
        values: [P, page, Hkv, D], all pages; written in place.
        table: [B, n] int64, block table: the pages of each row in the order of its positions.
        positions: [B, T] int64, the new positions, consecutive.
    """

    keys: Tensor
    values: Tensor
    table: Tensor
    positions: Tensor


class KVCache(Protocol):
    """Keys and values of earlier positions during one pass through all layers."""

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> Keys:
        """Store the new keys and values ([B, T, Hkv, D]); return everything the pass may see."""
        ...

    def pages(self, layer: int) -> Pages:
        """Return where a fused kernel stores the new keys and values itself; stores nothing."""
        ...


def attend(queries: Tensor, seen: Keys) -> Tensor:
    """Compute attention of queries [B, T, H, D] with PyTorch: [B, T, H, D]."""
    rows, steps, heads, width = queries.shape
    groups = seen.keys.shape[2]
    keys, values = seen.keys.transpose(1, 2), seen.values.transpose(1, 2)  # [B, Hkv, S, D]
    if seen.mask is None and steps > 1:
        attended = F.scaled_dot_product_attention(
            queries.transpose(1, 2), keys, values, is_causal=True, enable_gqa=groups != heads
        )
        return attended.transpose(1, 2)
    # Fold the query heads of a group into the query dimension, so no kernel copies their keys.
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
