"""Talker and codec run beside each other: no order of their work changes what is spoken.

Only events and the order within a stream bind the work, as on a GPU. Passes are captured once: a
replay repeats the recorded operations on the storages of the capture, and every intermediate is
poisoned before and after it.
"""

import pytest

from testbed.queued_streams import Order, queued_streams
from testbed.runner_driving import (
    RowOutput,
    converse,
    difference,
    few_graph_sizes,
    make_graph_runner,
)

SIZES = few_graph_sizes(1, 2, 4, 12)


def spoken_in(order: Order, seed: int) -> dict[int, RowOutput]:
    with queued_streams(order, seed) as adversary:
        spoken = converse(make_graph_runner(SIZES, has_graphs=True), seed)
        assert adversary.ran > 1000
    return spoken


@pytest.mark.parametrize(
    "seed",
    [
        2,
        *(
            pytest.param(seed, marks=(pytest.mark.thorough, pytest.mark.costly))
            for seed in (0, 1, 4)
        ),
    ],
)
def test_no_order_of_the_streams_changes_what_is_spoken(seed: int) -> None:
    """Every order gives the same bits, with prefixes, references and cancels among the work.

    A plain runner gives the same codes, and samples that differ by rounding only: what runs
    eagerly is split into other operations there.
    """
    plain = converse(make_graph_runner(SIZES, has_graphs=False), seed)
    assert len(plain) > 1
    spoken = spoken_in("random", seed)
    assert spoken.keys() == plain.keys()
    for number, output in plain.items():
        assert spoken[number].codes == output.codes
        assert len(spoken[number].pcm) == len(output.pcm)
        assert difference(spoken[number], output) <= 8
    others: tuple[Order, ...] = ("eager", "codec first", "talker first")
    for order in others:
        assert spoken_in(order, seed) == spoken, order
