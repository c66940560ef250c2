"""Streams: plain calls on a CPU, replays of a capture on a GPU, with equal results."""

import itertools

import pytest
import torch

from testbed.gpu import DEVICES, ON_GPU
from voiceagent_tts.engine.cuda_graph import Stream

CPU = torch.device("cpu")


def test_without_a_gpu_a_function_is_itself() -> None:
    """On a CPU nothing is captured, even on request, and each call runs when it is made."""
    stream, calls = Stream(CPU, is_captured=True), list[int]()

    def function() -> None:
        calls.append(1)

    assert stream.compile(function) is function
    assert calls == []
    assert stream.graphs == 0


def test_on_a_cpu_every_moment_is_past() -> None:
    """On a CPU work is done when it is submitted: every event is past, and times are the host's."""
    stream = Stream(CPU, is_captured=False)
    with stream.entered():
        earlier = stream.mark()
        torch.ones(200, 200) @ torch.ones(200, 200)
        later = stream.mark()
    stream.wait_for(later)
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
    """Each call reads and writes the current contents of its tensors, in stream order."""
    place = torch.device(device)
    stream = Stream(place, is_captured=is_captured)
    x, total = torch.zeros(4, device=place), torch.zeros(4, device=place)

    def function() -> None:
        total.add_(x * 2)

    add = stream.compile(function)
    total.zero_()  # the capture has run the function
    if place.type == "cuda":
        torch.cuda.synchronize()
    for value in range(5):
        with stream.entered():
            x.fill_(value)
            add()
    stream.mark().wait()
    assert total.tolist() == [20.0] * 4
    assert stream.graphs == is_captured


@pytest.mark.parametrize("device", DEVICES[1:])
def test_an_old_graph_does_not_break_a_capture(device: str) -> None:
    """A graph that becomes garbage during another capture is destroyed after that capture."""
    place = torch.device(device)
    stream, x, calls = (
        Stream(place, is_captured=True),
        torch.zeros(4, device=place),
        itertools.count(),
    )
    torch.cuda.synchronize()

    def clear() -> None:
        x.zero_()

    old = [stream.compile(clear)]

    def function() -> None:
        x.add_(1)
        if next(calls) == 2:  # after the two warm-up calls
            garbage: list[object] = [old.pop()]
            garbage.append(garbage)
            del garbage
        # enough allocations to trigger a garbage collection
        assert len([[] for _ in range(10_000)]) == 10_000

    add = stream.compile(function)
    x.zero_()
    torch.cuda.synchronize()
    with stream.entered():
        add()
    stream.mark().wait()
    assert x.tolist() == [1.0] * 4
