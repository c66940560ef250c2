"""Talker and codec run beside each other: no order of their work changes what is spoken.

Only events and the order within a stream bind the work, as on a GPU.
"""

import pytest

from testbed.queued_streams import ORDERS, Order, queued_streams
from testbed.runner_driving import (
    RowOutput,
    converse,
    difference,
    few_graph_sizes,
    make_graph_runner,
)

SHORT = {"steps": 14, "contexts": 5}
SIZES = few_graph_sizes(1, 2, 4, 12)


def spoken_in(order: Order, seed: int) -> dict[int, RowOutput]:
    """What random contexts speak when an adversary orders the work."""
    with queued_streams(order, seed) as adversary:
        spoken = converse(make_graph_runner(SIZES, has_graphs=True), seed, **SHORT)
        assert adversary.ran > 1000
    return spoken


@pytest.mark.parametrize(
    "seed",
    [
        0,
        *(
            pytest.param(seed, marks=(pytest.mark.thorough, pytest.mark.costly))
            for seed in range(1, 4)
        ),
    ],
)
def test_no_order_of_the_streams_changes_what_is_spoken(seed: int) -> None:
    """Every order gives the same bits, with prefixes, references and cancels among the work.

    A plain runner gives the same codes, and samples that differ by rounding only: what runs
    eagerly is split into other operations there.
    """
    plain = converse(make_graph_runner(SIZES, has_graphs=False), seed, **SHORT)
    assert len(plain) > 1
    first, *others = (spoken_in(order, seed) for order in (ORDERS if seed else ORDERS[2:]))
    assert is_same(first, plain)
    for spoken in others:
        assert spoken == first


def is_same(spoken: dict[int, RowOutput], plain: dict[int, RowOutput]) -> bool:
    """Whether codes are equal, and samples up to rounding."""
    return spoken.keys() == plain.keys() and all(
        spoken[number].codes == plain[number].codes
        and len(spoken[number].pcm) == len(plain[number].pcm)
        and difference(spoken[number], plain[number]) <= 8
        for number in plain
    )
