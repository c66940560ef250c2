"""Talker and codec run beside each other: no order of their work changes what is spoken.

Only events and the order within a stream bind the work, as on a GPU. The faults at the end show
that a missing wait and a buffer that is used again too early are found.
"""

from unittest.mock import patch

import pytest

from testbed.engine_driving import load
from testbed.queued_streams import ORDERS, Order, QueuedStream, queued_streams
from testbed.runner_driving import Listener, RowOutput, converse, difference
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.sizes import Shapes, Sizes, graph_sizes

ROWS, CAPACITY = 2, 512
SHORT = {"steps": 14, "contexts": 5}


def few_sizes() -> Sizes:
    """Sizes of a GPU, without those that these texts do not need."""
    sizes = graph_sizes(ROWS, CAPACITY)
    talker = sizes.talker
    shapes = Shapes((ROWS,), talker.windows[-1:], (32,))
    return Sizes(shapes, {frames: sizes.codec[frames][-1:] for frames in (1, 2, 4, 12)})


def make_runner(*, is_queued: bool) -> Runner:
    """A runner over tiny weights as a GPU has them."""
    parts = load(is_packed=False)
    runner = Runner(*parts, ROWS, CAPACITY, sizes=few_sizes(), has_graphs=is_queued)
    if is_queued:
        runner.graphs.capture(lambda done, total: None)
    return runner


def spoken_in(order: Order, seed: int) -> dict[int, RowOutput]:
    """What random contexts speak when an adversary orders the work."""
    with queued_streams(order, seed) as adversary:
        spoken = converse(make_runner(is_queued=True), seed, **SHORT)
        assert adversary.ran > 1000
    return spoken


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 4))]
)
def test_no_order_of_the_streams_changes_what_is_spoken(seed: int) -> None:
    """Every order gives the same bits, with prefixes, references and cancels among the work.

    A plain runner gives the same codes, and samples that differ by rounding only: what runs
    eagerly is split into other operations there.
    """
    plain = converse(make_runner(is_queued=False), seed, **SHORT)
    assert len(plain) > 1
    first, *others = (spoken_in(order, seed) for order in (ORDERS if seed else ORDERS[2::2]))
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


def is_found(order: Order) -> bool:
    """Whether this order changes what is spoken, or reads what is not there."""
    plain = in_bursts(make_runner(is_queued=False))
    try:
        with queued_streams(order):
            spoken = in_bursts(make_runner(is_queued=True))
    except IndexError:  # codes that are not there yet
        return True
    return not is_same(spoken, plain)


def in_bursts(runner: Runner) -> dict[int, RowOutput]:
    """Two rows whose frames are decoded by several calls in one step, while both go on."""
    listener = Listener(runner)
    for row in range(ROWS):
        listener.start(row, seed=row, max_frames=12)
    for decode in ({}, {}, {0: 3, 1: 1}, {1: 2}, {0: 1, 1: 3}, {}, {0: 7}):
        listener.step(decode)
    return {row: listener.finish(row) for row in range(ROWS)}


def test_a_missing_wait_for_the_frames_is_found() -> None:
    """A codec that does not wait for its frames speaks differently in some order."""
    with patch.object(QueuedStream, "wait_for", lambda self, event: None):
        assert is_found("codec first")
