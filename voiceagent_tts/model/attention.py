"""Attention of the talker and the code predictor, and the key-value cache interface it reads.

Shapes: B rows, T new positions, S visible positions, H query heads, Hkv key and value heads, D
numbers per head. `KVCache` returns what a pass may see.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from voiceagent_tts.errors import ErrorCode, VoiceAgentError

AttentionBackend = Literal["sdpa", "flash"]

_AMPERE, _HOPPER = 8, 9
"""Major compute capabilities of NVIDIA GPUs."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys and values that the queries of one layer may attend to.

    Attributes:
        keys: [B, S, Hkv, D].
        values: [B, S, Hkv, D].
        lengths: number of positions that the last query of each row sees: [B] int32, or one int
            for all rows.
        mask: [B, 1, T, S], added to the scores. None is the causal mask: query t of T sees all
            but the last T - 1 - t positions.
    """

    keys: Tensor
    values: Tensor
    lengths: Tensor | int
    mask: Tensor | None = None


@dataclass(frozen=True, slots=True)
class PagedKeys:
    """Paged form of `Keys`: keys and values live in fixed-size pages.

    Attributes:
        keys: [P, page, Hkv, D], all pages.
        values: [P, page, Hkv, D], all pages.
        lengths: [B] int32, as in `Keys`.
        mask: [B, 1, T, S], as in `Keys`.
        table: [B, n] int32, block table: the pages of each row in the order of its positions.
        seen: [B, S] int64, flat index (page * page size + offset) of each visible position; that of
            the row's last position where no query sees any.
    """

    keys: Tensor
    values: Tensor
    lengths: Tensor
    mask: Tensor
    table: Tensor
    seen: Tensor

    def gather(self) -> Keys:
        """Copy each row's keys and values into contiguous tensors."""
        keys, values = (self._gather(pages) for pages in (self.keys, self.values))
        return Keys(keys, values, self.lengths, self.mask)

    def _gather(self, pages: Tensor) -> Tensor:
        visible = pages.flatten(0, 1).index_select(0, self.seen.flatten())
        return visible.view(*self.seen.shape, *pages.shape[2:])


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

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> Keys | PagedKeys:
        """Store the new keys and values ([B, T, Hkv, D]); return everything the pass may see."""
        ...

    def pages(self, layer: int) -> Pages:
        """Return where a fused kernel stores the new keys and values itself; stores nothing."""
        ...


Attend = Callable[[Tensor, Keys | PagedKeys], Tensor]
"""Function from queries [B, T, H, D] and the keys that they may see to [B, T, H, D]."""


def make_attention(backend: AttentionBackend, dtype: torch.dtype) -> Attend:
    """Return the function that computes attention.

    Args:
        backend: `sdpa` (PyTorch, any machine) or `flash` (flash-attn; version 3 if it is installed
            and the GPU is a Hopper).
        dtype: precision of the model.

    Raises:
        VoiceAgentError: flash-attn is not usable on this machine or in this precision.
    """
    if backend == "sdpa":
        # PyTorch prefers cuDNN's kernels on Hopper. cuDNN plans a kernel for every new number of
        # rows and keys, which takes tens of milliseconds for each of a frame's fifteen steps.
        torch.backends.cuda.enable_cudnn_sdp(False)
        return attend_sdpa
    if dtype not in (torch.bfloat16, torch.float16):
        raise VoiceAgentError(
            f"flash-attn: expected bfloat16 or float16, got {dtype}; try sdpa",
            code=ErrorCode.INVALID_PARAM,
        )
    return _flash()


def attend_sdpa(queries: Tensor, seen: Keys | PagedKeys) -> Tensor:
    """Compute attention with PyTorch; pages are gathered first."""
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


def _flash() -> Attend:
    for package, table_name in _flash_packages():
        try:
            with_cache = importlib.import_module(package).flash_attn_with_kvcache
        except ImportError:
            continue
        return _FlashAttention(with_cache, table_name)
    raise VoiceAgentError(
        "expected a flash-attn that runs on this machine, found none; install flash-attn "
        "(GPUs from Ampere on) or try sdpa",
        code=ErrorCode.INVALID_PARAM,
    )


def _flash_packages() -> Iterator[tuple[str, str]]:
    """Yield packages with kernels for this GPU, best first, and their block-table argument."""
    major = torch.cuda.get_device_capability()[0] if torch.cuda.is_available() else 0
    if major == _HOPPER:
        yield "flash_attn_interface", "page_table"
    if major >= _AMPERE:
        yield "flash_attn", "block_table"


class _FlashAttention:
    """Computes attention with flash-attn, which reads pages in place.

    Args:
        with_cache: the package's `flash_attn_with_kvcache`.
        table_name: name of its block-table argument.
    """

    def __init__(self, with_cache: Callable[..., Tensor], table_name: str) -> None:
        self._with_cache, self._table_name = with_cache, table_name

    def __call__(self, queries: Tensor, seen: Keys | PagedKeys) -> Tensor:
        pages = {self._table_name: seen.table} if isinstance(seen, PagedKeys) else {}
        return self._with_cache(
            queries, seen.keys, seen.values, cache_seqlens=seen.lengths, causal=True, **pages
        )
