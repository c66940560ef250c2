"""The beginning of a prompt, computed once, outside of the pages that rows hold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from voiceagent_tts.model.kv_pool import PAGE_POSITIONS, KVPool, pages_for


@dataclass(frozen=True, slots=True, eq=False)
class KVPrefix:
    """Keys and values of a prompt's first positions, each [L, T, Hkv, D], outside of all pages.

    Prefixes are far shorter than a page: rows copy them, which costs less than sharing pages that
    would stay nearly empty.
    """

    keys: Tensor
    values: Tensor

    @property
    def bytes(self) -> int:
        """Memory of both."""
        return 2 * self.keys.numel() * self.keys.element_size()


def read_prefix(pool: KVPool, pages: Sequence[int], positions: int) -> KVPrefix:
    """A copy of the first positions that lie in `pages`."""
    spans = list(_spans(pages, positions))

    def read(held: Tensor) -> Tensor:
        return torch.cat([held[:, page, :count] for page, count in spans], dim=1)

    return KVPrefix(read(pool.keys), read(pool.values))


def write_prefix(pool: KVPool, pages: Sequence[int], prefix: KVPrefix) -> None:
    """Let a row that holds `pages` begin with `prefix`."""
    start = 0
    for page, count in _spans(pages, prefix.keys.shape[1]):
        pool.keys[:, page, :count] = prefix.keys[:, start : start + count]
        pool.values[:, page, :count] = prefix.values[:, start : start + count]
        start += count


def _spans(pages: Sequence[int], positions: int) -> Iterator[tuple[int, int]]:
    """Pages and how many of the positions each holds."""
    for number, page in enumerate(pages[: pages_for(positions)]):
        yield page, min(PAGE_POSITIONS, positions - number * PAGE_POSITIONS)
