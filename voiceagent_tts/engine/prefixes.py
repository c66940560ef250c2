"""Computed beginnings of prompts, stored outside the KV pages of the rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from voiceagent_tts.model.kv_pool import PAGE_POSITIONS, KVPool, pages_for
from voiceagent_tts.model.prompt import Prompt


@dataclass(frozen=True, slots=True, eq=False)
class KVPrefix:
    """Keys and values of a prompt's first positions.

    A prefix is far shorter than a page. Copying it into each row needs less memory than sharing
    pages that would be nearly empty.

    Attributes:
        keys: [L, T, Hkv, D], one layer after the other.
        values: [L, T, Hkv, D].
    """

    keys: Tensor
    values: Tensor

    @property
    def bytes(self) -> int:
        """Memory of keys and values."""
        return 2 * self.keys.numel() * self.keys.element_size()


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Prefix:
    """The computed beginning of a prompt, the part that does not depend on the text.

    Its memory is freed with the last reference to it.
    """

    prompt: Prompt
    kv: KVPrefix

    def __len__(self) -> int:
        return len(self.prompt)

    def begins(self, prompt: Prompt) -> bool:
        """Whether `prompt` continues this prefix."""
        own = self.prompt
        return (
            len(own) < len(prompt)
            and prompt.text_ids[: len(own)] == own.text_ids
            and prompt.codec_ids[: len(own)] == own.codec_ids
        )


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
