"""Assigns the rows and KV pages of one device to sequences."""

import contextlib
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence

from voiceagent_tts.engine.sequence import ActiveSequence, EngineContext, SequenceState
from voiceagent_tts.errors import OverloadedError


class RowMemory:
    """Hands out the rows of one device and its KV pages 1 to `pages`, and takes them back.

    The lowest free page is taken first, so that little memory is ever touched on a CPU.
    """

    def __init__(self, rows: int, pages: int) -> None:
        self.pages = pages
        self._free_rows = list(range(rows))
        self._free_pages = list(range(pages, 0, -1))

    @property
    def free_pages(self) -> int:
        """Number of KV pages that no row holds."""
        return len(self._free_pages)

    def take(self, prompt_pages: int, likely_pages: int) -> ActiveSequence:
        """Give a row, and the pages of its prompt, to a sequence.

        Raises:
            OverloadedError: too few pages are free.
        """
        pages = self._take_pages(prompt_pages)
        return ActiveSequence(self._free_rows.pop(0), likely_pages, pages)

    def extend(self, active: ActiveSequence, spare: int) -> bool:
        """Give another page to a row that has filled its pages.

        Returns:
            Whether more than `spare` pages were free. If not, the row makes no more frames.
        """
        if self.free_pages <= spare:
            active.state = SequenceState.OUT_OF_MEMORY
            return False
        active.pages += self._take_pages(1)
        return True

    def take_back(self, contexts: Iterable[EngineContext]) -> None:
        """Take back the pages of rows that make no more frames; what waits for pages may start.

        Their frames that are not audio yet need none.
        """
        contexts = list(contexts)
        active = [context.active for context in contexts if context.active]
        for ended in [one for one in active if one.has_ended and one.pages]:
            self._release_pages(ended, contexts)

    def release(self, context: EngineContext, contexts: Iterable[EngineContext]) -> None:
        """Take back the row and the pages of a context; contexts that wait for pages may start."""
        assert context.active is not None
        insort(self._free_rows, context.active.row)
        self._release_pages(context.active, contexts)
        context.active = None

    @contextlib.contextmanager
    def lend_pages(self, count: int) -> Iterator[Sequence[int] | None]:
        """Lend free pages for the duration of a block; None if fewer than `count` are free."""
        if count > self.free_pages:
            yield None
            return
        pages = self._take_pages(count)
        try:
            yield pages
        finally:
            self._give_back(pages)

    def _take_pages(self, count: int) -> tuple[int, ...]:
        if count > self.free_pages:
            raise OverloadedError(
                f"{count} pages of memory are needed, but {self.free_pages} are free"
            )
        return tuple(self._free_pages.pop() for _ in range(count))

    def _give_back(self, pages: Iterable[int]) -> None:
        self._free_pages += pages
        self._free_pages.sort(reverse=True)

    def _release_pages(self, active: ActiveSequence, contexts: Iterable[EngineContext]) -> None:
        self._give_back(active.pages)
        active.pages, active.likely_pages = (), 0
        for context in contexts:
            context.waits_for_memory = False
