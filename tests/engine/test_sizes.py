"""Sizes: every call has one, and few enough exist to capture them all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceagent_tts.engine.sizes import (
    WINDOWS_FRAMES,
    Sizes,
    exact_sizes,
    fitting,
    fixed_sizes,
    graph_sizes,
)


@given(
    st.sampled_from([exact_sizes, graph_sizes, fixed_sizes]),
    st.integers(1, 300),
    st.integers(64, 4096),
    st.data(),
)
def test_every_call_finds_its_size(
    kind: object, rows: int, capacity: int, data: st.DataObject
) -> None:
    sizes: Sizes = kind(rows, capacity)  # type: ignore[operator]
    shapes = sizes.talker
    speaking = data.draw(st.integers(1, rows))
    assert speaking <= fitting(shapes.rows, speaking) <= rows
    begin = data.draw(st.integers(0, capacity - 1))
    rest = data.draw(st.integers(1, capacity - begin))
    length = fitting(shapes.prompts, min(rest, shapes.prompts[-1]))
    assert shapes.allows_prefill(1, length, fitting(shapes.windows, begin + length))
    assert fitting(shapes.windows, capacity) >= capacity
    assert max(shapes.prompt_rows) <= rows
    for frames, counts in sizes.codec.items():
        assert counts[-1] * frames <= 64
        assert counts[-1] <= rows
    assert 1 in sizes.codec


@pytest.mark.parametrize("rows", [1, 8, 64, 256])
def test_few_sizes_are_captured(rows: int) -> None:
    """The number of sizes is small enough to capture each in seconds and in little memory."""
    sizes = graph_sizes(rows, 4096)
    shapes = sizes.talker
    assert shapes.rows[-1] == rows
    assert shapes.prompts[-1] == 512
    assert len(shapes.rows) * (1 + len(shapes.windows)) <= 60
    assert sum(map(len, sizes.codec.values())) <= 28
    assert set(sizes.codec) == set(WINDOWS_FRAMES)
