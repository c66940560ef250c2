"""Pages of the talker's memory: who holds which, how many there are, and what fits into a GPU.

Numbers only: knows no tensors and no rows' contents.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from voiceagent_tts.errors import ErrorCode, OverloadedError, VoiceAgentError

_GB = 1e9
_MOST_ROWS = 64
_MINUTE_PAGES = 4
"""1,024 positions: a prompt and eighty seconds, or more than an agent says at a time."""


class PageAllocator:
    """Pages 1 to `pages`: each is free or held by one row.

    The lowest free page is taken first, so that on a processor little memory is ever touched.

    Args:
        pages: how many there are.
    """

    def __init__(self, pages: int) -> None:
        self._free = list(range(pages, 0, -1))
        self._held: dict[int, list[int]] = {}

    @property
    def free(self) -> int:
        """How many pages no row holds."""
        return len(self._free)

    def held(self, row: int) -> Sequence[int]:
        """The pages of a row, in the order of its positions."""
        return self._held.get(row, ())

    def take(self, row: int, count: int) -> Sequence[int]:
        """Give a row `count` more pages, all or none; returns all that it holds.

        Raises:
            OverloadedError: so many are not free.
        """
        if count > len(self._free):
            raise OverloadedError(
                f"{count} pages of memory are needed and {len(self._free)} are free"
            )
        held = self._held.setdefault(row, [])
        held += [self._free.pop() for _ in range(count)]
        return held

    def release(self, row: int) -> None:
        """Free all pages of a row; idempotent."""
        self._free += self._held.pop(row, ())
        self._free.sort(reverse=True)


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """What a GPU must hold, in bytes.

    Attributes:
        weights: of talker, code predictor and codec, and what the driver takes for itself.
        rows: what every row has beside its pages.
        graphs: of captured graphs and of what a pass needs while it runs.
        voices: kept for cloned voices and prompts that are computed once.
        page: one page.
        row_pages: pages of a row that fills its capacity.
    """

    weights: int
    rows: int
    graphs: int
    voices: int
    page: int
    row_pages: int

    @property
    def beside_pages(self) -> int:
        """All but pages."""
        return self.weights + self.rows + self.graphs + self.voices

    def pages_in(self, budget_bytes: int, rows: int) -> int:
        """How many pages fit into a budget, at most what all rows can fill.

        Raises:
            VoiceAgentError: not even one row fits.
        """
        pages = self._room(budget_bytes)
        if pages < self.row_pages:
            raise VoiceAgentError(
                f"{budget_bytes / _GB:.2f} GB of GPU memory are too little: weights take "
                f"{self.weights / _GB:.2f}, {rows} rows {self.rows / _GB:.2f}, graphs "
                f"{self.graphs / _GB:.2f}, voices {self.voices / _GB:.2f}, and one row of "
                f"{self.row_pages} pages {self.row_pages * self.page / _GB:.2f}; expected at "
                f"least {(self.beside_pages + self.row_pages * self.page) / _GB:.2f} GB: raise "
                "gpu_memory_gb, or lower rows",
                code=ErrorCode.INVALID_PARAM,
            )
        return min(pages, rows * self.row_pages)

    def has_minutes(self, budget_bytes: int, rows: int) -> bool:
        """Whether every row can speak for a minute at the same time, and one for as long as any."""
        pages = min(_MINUTE_PAGES, self.row_pages)
        return self._room(budget_bytes) >= max(self.row_pages, rows * pages)

    def _room(self, budget_bytes: int) -> int:
        return (budget_bytes - self.beside_pages) // self.page


def rows_that_fit(
    needs_of: Callable[[int], MemoryNeeds], budget_bytes: int
) -> tuple[int, MemoryNeeds]:
    """The most rows, of 64 at most, that can all speak for a minute; one where none can.

    Args:
        needs_of: what so many rows need; raises VoiceAgentError where they cannot even be run.
        budget_bytes: what there is.

    Raises:
        VoiceAgentError: one row cannot be run.
    """
    rows = _MOST_ROWS
    while rows > 1:
        with contextlib.suppress(VoiceAgentError):
            needs = needs_of(rows)
            if needs.has_minutes(budget_bytes, rows):
                return rows, needs
        rows //= 2
    return rows, needs_of(rows)
