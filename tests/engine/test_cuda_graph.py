"""A lane: plain calls on a CPU, replays of one capture on a GPU, and the same numbers."""

import itertools

import pytest
import torch

from testbed.gpu import DEVICES, ON_GPU
from voiceagent_tts.engine.cuda_graph import Lane

CPU = torch.device("cpu")


def test_without_a_gpu_a_function_is_itself() -> None:
    """On a CPU nothing is captured, asked for or not, and nothing runs ahead of its call."""
    lane, calls = Lane(CPU, is_captured=True), list[int]()

    def function() -> None:
        calls.append(1)

    assert lane.compile(function) is function
    assert calls == []
    assert lane.graphs == 0


def test_on_a_cpu_every_moment_is_past() -> None:
    """Work is done when it is asked for, so that no moment lies ahead and time is the host's."""
    lane = Lane(CPU, is_captured=False)
    with lane.entered():
        earlier = lane.mark()
        torch.ones(200, 200) @ torch.ones(200, 200)
        later = lane.mark()
    lane.wait_for(later)
    later.wait()
    assert later.is_past
    assert later.seconds_since(earlier) > 0


@pytest.mark.parametrize(
    ("device", "is_captured"),
    [
        ("cpu", False),
        pytest.param("cuda", False, marks=ON_GPU),
        pytest.param("cuda", True, marks=ON_GPU),
    ],
)
def test_a_call_reads_and_writes_what_its_tensors_hold(device: str, is_captured: bool) -> None:
    """Each call computes with what stands in its tensors then, in the order of the lane."""
    place = torch.device(device)
    lane = Lane(place, is_captured=is_captured)
    x, total = torch.zeros(4, device=place), torch.zeros(4, device=place)

    def function() -> None:
        total.add_(x * 2)

    add = lane.compile(function)
    total.zero_()  # a capture has run the function
    if place.type == "cuda":
        torch.cuda.synchronize()
    for value in range(5):
        with lane.entered():
            x.fill_(value)
            add()
    lane.mark().wait()
    assert total.tolist() == [20.0] * 4
    assert lane.graphs == is_captured


@pytest.mark.parametrize("device", DEVICES[1:])
def test_an_old_graph_does_not_break_a_capture(device: str) -> None:
    """A graph that becomes garbage while another is captured is destroyed after that."""
    place = torch.device(device)
    lane, x, calls = Lane(place, is_captured=True), torch.zeros(4, device=place), itertools.count()
    torch.cuda.synchronize()

    def clear() -> None:
        x.zero_()

    old = [lane.compile(clear)]

    def function() -> None:
        x.add_(1)
        if next(calls) == 2:  # after the two that warm up
            garbage: list[object] = [old.pop()]
            garbage.append(garbage)
            del garbage
        assert len([[] for _ in range(10_000)]) == 10_000  # enough for Python to look for garbage

    add = lane.compile(function)
    x.zero_()
    torch.cuda.synchronize()
    with lane.entered():
        add()
    lane.mark().wait()
    assert x.tolist() == [1.0] * 4
