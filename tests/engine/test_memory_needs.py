"""How many rows and pages fit into memory; `test_scheduler` gives pages out and takes them back."""

from dataclasses import replace

import pytest

from voiceagent_tts.engine.gpu_memory import MemoryNeeds, rows_that_fit
from voiceagent_tts.errors import ErrorCode, VoiceAgentError

GB = 10**9

NEEDS = MemoryNeeds(
    weights=4 * GB, rows=GB // 2, graphs=GB // 2, voices=GB // 4, page=GB // 32, row_pages=16
)


@pytest.mark.parametrize(
    ("gb", "rows", "pages"), [(8, 8, 88), (8, 2, 32), (80, 8, 128), (5.75, 8, 16)]
)
def test_what_fits_becomes_pages(gb: float, rows: int, pages: int) -> None:
    """All remaining memory becomes pages, up to the number that all rows can fill."""
    assert NEEDS.pages_in(int(gb * GB), rows) == pages


def test_too_little_memory_is_told_with_numbers() -> None:
    """If not even one row fits, the error lists what needs how much, and how much would suffice."""
    with pytest.raises(VoiceAgentError, match=r"5\.70 GB .* weights need 4\.00.*least 5\.75 GB"):
        NEEDS.pages_in(int(5.7 * GB), 8)


def needs_of(rows: int) -> MemoryNeeds:
    return replace(NEEDS, rows=rows * GB // 16)


@pytest.mark.parametrize(
    ("gb", "rows"), [(80, 64), (16.75, 64), (16.7, 32), (8, 16), (7.7, 8), (5.4, 2), (4, 1)]
)
def test_as_many_rows_as_can_speak_for_a_minute_are_the_default(gb: float, rows: int) -> None:
    """The default is the largest number of rows with four pages each.

    A row takes 1/16 GB and 4 pages; a single row gets all 16 pages, and is tried even without them.
    """
    assert rows_that_fit(needs_of, int(gb * GB)) == (rows, needs_of(rows))


@pytest.mark.parametrize(("runnable", "rows"), [(40, 32), (1, 1)])
def test_fewer_rows_are_tried_where_many_cannot_even_run(runnable: int, rows: int) -> None:
    """Fewer rows are tried until a pass fits into the GPU; if one row does not, loading fails."""

    def overflowing(tried: int) -> MemoryNeeds:
        if tried > runnable:
            raise VoiceAgentError("they do not fit", code=ErrorCode.INVALID_PARAM)
        return needs_of(tried)

    assert rows_that_fit(overflowing, 80 * GB) == (rows, needs_of(rows))
    with pytest.raises(VoiceAgentError, match="they do not fit"):
        rows_that_fit(lambda tried: overflowing(tried + runnable), 80 * GB)
