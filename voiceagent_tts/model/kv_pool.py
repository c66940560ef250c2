"""The talker's key-value memory in fixed-size pages that any row can own; written in place.

A row's positions are in the pages that its page table lists; the caller assigns pages to rows.
Positions beyond a row's last one are never read, so pages need no clearing. Shapes depend only on
the numbers of rows and positions, and nothing here waits for the device.
"""

import math
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from voiceagent_tts.model.attention import PagedKeys, Pages
from voiceagent_tts.model.config import TransformerConfig

PAGE_POSITIONS = 256
"""Page size that flash-attn's kernels require; at the published sizes a bfloat16 page has 29 MB."""
SCRATCH_PAGE = 0
"""Page that belongs to no row: page tables list it where a row has no page, for unused writes."""


def pages_for(positions: int) -> int:
    """Return the number of pages that `positions` positions need."""
    return -(-positions // PAGE_POSITIONS)


@dataclass(frozen=True, slots=True)
class KVPool:
    """Keys and values of every position of every page, each [L, P, 256, Hkv, D]."""

    keys: Tensor
    values: Tensor


def empty_pool(config: TransformerConfig, pages: int, like: Tensor) -> KVPool:
    """Create a pool of `pages` pages and the scratch page, with the dtype and device of `like`."""
    shape = (
        config.num_hidden_layers,
        pages + 1,
        PAGE_POSITIONS,
        config.num_key_value_heads,
        config.head_dim,
    )
    return KVPool(_zeros(shape, like), _zeros(shape, like))


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Allocate zeros; on a CPU, untouched memory is not committed.

    Maps anonymous memory in pages of the system's small size. NumPy's arrays request huge pages,
    whose first use stops a row for a third of a second (measured).
    """
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    memory = mmap.mmap(-1, math.prod(shape) * like.element_size())
    return torch.frombuffer(memory, dtype=like.dtype).view(shape)


class PagedKVCache:
    """The pool during one pass: each row adds positions that follow its earlier ones.

    Values that only `extend` needs are computed by its first call.

    Args:
        table: [B, n] int64, the pages of each row; the scratch page where it has none.
        positions: [B, T] int64, consecutive.
        window: number of positions that attention reads, at most n pages; covers the new ones.
    """

    def __init__(self, pool: KVPool, table: Tensor, positions: Tensor, window: int) -> None:
        self._pool, self._table, self._positions, self._window = pool, table, positions, window

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> PagedKeys:
        """Store the pass's keys and values ([B, T, Hkv, D]); return all that its queries see."""
        pages = self.pages(layer)
        for held, new in ((pages.keys, keys), (pages.values, values)):
            held.flatten(0, 1).index_copy_(0, self._places, new.flatten(0, 1))
        lengths, mask, table, seen = self._view
        return PagedKeys(pages.keys, pages.values, lengths, mask, table, seen)

    def pages(self, layer: int) -> Pages:
        """Return where a fused kernel stores the pass's keys and values."""
        keys, values = self._pool.keys[layer], self._pool.values[layer]
        return Pages(keys, values, self._table, self._positions)

    @cached_property
    def _places(self) -> Tensor:
        """Index of each new position among the positions of all pages: [B T] int64."""
        return self._places_of(self._positions).flatten()

    @cached_property
    def _view(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Lengths, mask, table and seen of `PagedKeys`, equal for every layer."""
        seen = torch.arange(self._window, device=self._table.device)
        zeros = self._pool.keys.new_zeros(*self._positions.shape, self._window)
        hidden = seen > self._positions[:, :, None]
        mask = zeros.masked_fill_(hidden, float("-inf"))[:, None]  # [B, 1, T, S]
        # A mask does not hide NaN, which another row may have left: read no position of others.
        places = self._places_of(torch.minimum(seen, self._positions[:, -1:]))  # [B, S]
        lengths = (self._positions[:, -1] + 1).int()
        return lengths, mask, self._table[:, : pages_for(self._window)].int(), places

    def _places_of(self, positions: Tensor) -> Tensor:
        pages = self._table.gather(1, positions // PAGE_POSITIONS)
        return pages * PAGE_POSITIONS + positions % PAGE_POSITIONS


@dataclass(frozen=True, slots=True, eq=False)
class KVPrefix:
    """Keys and values of a prompt's first positions, each [L, T, Hkv, D].

    A prefix is far shorter than a page. Copying it into each row needs less memory than sharing
    pages that would be nearly empty.
    """

    keys: Tensor
    values: Tensor

    @property
    def bytes(self) -> int:
        """Memory of keys and values."""
        return 2 * self.keys.numel() * self.keys.element_size()


def read_prefix(pool: KVPool, pages: Sequence[int], positions: int) -> KVPrefix:
    """Copy the first `positions` positions out of `pages`."""
    spans = list(_spans(pages, positions))

    def read(cache: Tensor) -> Tensor:
        return torch.cat([cache[:, page, :count] for page, count in spans], dim=1)

    return KVPrefix(read(pool.keys), read(pool.values))


def write_prefix(pool: KVPool, pages: Sequence[int], prefix: KVPrefix) -> None:
    """Copy `prefix` into the first positions of `pages`."""
    start = 0
    for page, count in _spans(pages, prefix.keys.shape[1]):
        pool.keys[:, page, :count] = prefix.keys[:, start : start + count]
        pool.values[:, page, :count] = prefix.values[:, start : start + count]
        start += count


def _spans(pages: Sequence[int], positions: int) -> Iterator[tuple[int, int]]:
    """Yield the pages that contain the positions, and how many of them each contains."""
    for number, page in enumerate(pages[: pages_for(positions)]):
        yield page, min(PAGE_POSITIONS, positions - number * PAGE_POSITIONS)
