"""The talker's memory in pages, which any row may hold: a value, written in place.

A row's positions lie in the pages that its table lists; which page is whose, the caller decides.
What lies at or beyond a row's position is never looked at, so that pages need no clearing. Shapes
depend on the numbers of rows and positions alone, and nothing here waits for the device. Knows no
weights.
"""

import math
import mmap
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from voiceagent_tts.model.attention import PagedKeys, Pages
from voiceagent_tts.model.config import TransformerConfig

PAGE_POSITIONS = 256
"""What flash-attn's kernels take; at the published sizes a page has 29 MB in bfloat16."""
SCRATCH_PAGE = 0
"""No row's: tables list it where a row has no page, and what has no place is written there."""


def pages_for(positions: int) -> int:
    """Pages that hold so many positions."""
    return -(-positions // PAGE_POSITIONS)


@dataclass(frozen=True, slots=True)
class KVPool:
    """Keys and values of every position of every page, each [L, P, 256, Hkv, D]."""

    keys: Tensor
    values: Tensor

    @property
    def pages(self) -> int:
        """Pages that rows can hold."""
        return self.keys.shape[1] - 1


def empty_pool(config: TransformerConfig, pages: int, like: Tensor) -> KVPool:
    """A pool of `pages` pages and the scratch page, in the precision and place of `like`.

    It holds zeros: what a mask hides must still be finite.
    """
    shape = (
        config.num_hidden_layers,
        pages + 1,
        PAGE_POSITIONS,
        config.num_key_value_heads,
        config.head_dim,
    )
    return KVPool(_zeros(shape, like), _zeros(shape, like))


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Zeros; in a processor's memory such that what is never touched takes none.

    Anonymous pages of the system's small size: arrays of NumPy ask for huge ones, whose first touch
    stops a row for a third of a second (measured).
    """
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    memory = mmap.mmap(-1, math.prod(shape) * like.element_size())
    return torch.frombuffer(memory, dtype=like.dtype).view(shape)


class PagedKVCache:
    """The pool during one pass: each row takes new positions that follow its earlier ones.

    What only `extend` needs is computed by the first one.

    Args:
        pool: written in place.
        table: [B, n] int64, the pages of each row, the scratch page where it has none.
        positions: [B, T] int64, consecutive.
        window: how far keys are read: more than every position that counts, at most n pages.
    """

    def __init__(self, pool: KVPool, table: Tensor, positions: Tensor, window: int) -> None:
        self._pool, self._table, self._positions, self._window = pool, table, positions, window

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> PagedKeys:
        """Remember the pass's keys and values ([B, T, Hkv, D]); return all that they may see."""
        pages = self.pages(layer)
        for held, new in ((pages.keys, keys), (pages.values, values)):
            held.flatten(0, 1).index_copy_(0, self._places, new.flatten(0, 1))
        lengths, mask, table, seen = self._view
        return PagedKeys(pages.keys, pages.values, lengths, mask, table, seen)

    def pages(self, layer: int) -> Pages:
        """Where the pass's keys and values go."""
        keys, values = self._pool.keys[layer], self._pool.values[layer]
        return Pages(keys, values, self._table, self._positions)

    @cached_property
    def _places(self) -> Tensor:
        """[B T] int64, of the pass's positions among those of all pages."""
        places = self._table.gather(1, self._positions // PAGE_POSITIONS) * PAGE_POSITIONS
        return (places + self._positions % PAGE_POSITIONS).flatten()

    @cached_property
    def _view(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Lengths, mask, table and seen of `PagedKeys`, the same for every layer."""
        seen = torch.arange(self._window, device=self._table.device)
        zeros = self._pool.keys.new_zeros(*self._positions.shape, self._window)
        hidden = seen > self._positions[:, :, None]
        mask = zeros.masked_fill_(hidden, float("-inf"))[:, None]  # [B, 1, T, S]
        pages = self._table[:, seen // PAGE_POSITIONS]
        places = pages * PAGE_POSITIONS + seen % PAGE_POSITIONS  # [B, S]
        lengths = (self._positions[:, -1] + 1).int()
        return lengths, mask, self._table[:, : pages_for(self._window)].int(), places
