"""KV pages of the talker: their allocation to rows, and how many fit into a GPU.

Computes with numbers only; knows no tensors.
"""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from voiceagent_tts.errors import ErrorCode, OverloadedError, VoiceAgentError

_GB = 1e9
_MOST_ROWS = 64
_MINUTE_PAGES = 4
"""1,024 positions: a prompt and eighty seconds of audio, more than an agent says in one turn."""


class PageAllocator:
    """The free ones of KV pages 1 to `pages`; who takes some gives them back.

    The lowest free page is taken first, so that little memory is ever touched on a CPU.
    """

    def __init__(self, pages: int) -> None:
        self._free = list(range(pages, 0, -1))

    @property
    def free(self) -> int:
        """Number of free pages."""
        return len(self._free)

    def take(self, count: int) -> tuple[int, ...]:
        """Take `count` pages, all or none.

        Raises:
            OverloadedError: fewer than `count` pages are free.
        """
        if count > len(self._free):
            raise OverloadedError(
                f"{count} pages of memory are needed, but {len(self._free)} are free"
            )
        return tuple(self._free.pop() for _ in range(count))

    def give_back(self, pages: Iterable[int]) -> None:
        """Free pages that were taken."""
        self._free += pages
        self._free.sort(reverse=True)


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """Memory that an engine needs on a GPU, in bytes unless stated otherwise.

    Attributes:
        weights: weights of talker, code predictor and codec, and the memory of the driver and of
            libraries.
        rows: state of all rows except their KV pages, and the page of the row that pads batches.
        graphs: captured graphs, and the working memory of passes.
        voices: cloned voices and computed beginnings of prompts.
        page: one KV page.
        row_pages: number of KV pages of a row that fills its capacity.
    """

    weights: int
    rows: int
    graphs: int
    voices: int
    page: int
    row_pages: int

    @property
    def beside_pages(self) -> int:
        """Everything except KV pages."""
        return self.weights + self.rows + self.graphs + self.voices

    def pages_in(self, budget_bytes: int, rows: int) -> int:
        """Return the number of pages that fit into a budget, at most what all rows can fill.

        Raises:
            VoiceAgentError: not even one row fits.
        """
        pages = self._room(budget_bytes)
        if pages < self.row_pages:
            raise VoiceAgentError(
                f"{budget_bytes / _GB:.2f} GB of GPU memory are too little: weights need "
                f"{self.weights / _GB:.2f}, {rows} rows {self.rows / _GB:.2f}, graphs "
                f"{self.graphs / _GB:.2f}, voices {self.voices / _GB:.2f}, and one row of "
                f"{self.row_pages} pages {self.row_pages * self.page / _GB:.2f}; expected at "
                f"least {(self.beside_pages + self.row_pages * self.page) / _GB:.2f} GB; raise "
                "gpu_memory_gb, or lower rows",
                code=ErrorCode.INVALID_PARAM,
            )
        return min(pages, rows * self.row_pages)

    def has_minutes(self, budget_bytes: int, rows: int) -> bool:
        """Whether all rows together have pages for a minute each, and one row for its capacity."""
        pages = min(_MINUTE_PAGES, self.row_pages)
        return self._room(budget_bytes) >= max(self.row_pages, rows * pages)

    def _room(self, budget_bytes: int) -> int:
        return (budget_bytes - self.beside_pages) // self.page


def rows_that_fit(
    needs_of: Callable[[int], MemoryNeeds], budget_bytes: int
) -> tuple[int, MemoryNeeds]:
    """Return the largest number of rows, at most 64, that have memory for a minute each, or 1.

    Args:
        needs_of: returns the needs of a number of rows; raises VoiceAgentError if the memory does
            not suffice to run their passes.
        budget_bytes: memory that the engine may use.

    Returns:
        The number of rows and their needs.

    Raises:
        VoiceAgentError: the passes of a single row cannot be run.
    """
    rows = _MOST_ROWS
    while rows > 1:
        with contextlib.suppress(VoiceAgentError):
            needs = needs_of(rows)
            if needs.has_minutes(budget_bytes, rows):
                return rows, needs
        rows //= 2
    return rows, needs_of(rows)
