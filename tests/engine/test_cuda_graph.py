"""Streams: plain calls on a CPU, replays of a capture on a GPU, with equal results."""

import itertools

import pytest
import torch

from testbed.gpu import DEVICES, ON_GPU
from voiceagent_tts.engine.cuda_graph import Stream


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
