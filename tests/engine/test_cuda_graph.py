"""Streams: plain calls on a CPU, replays of a capture on a GPU, with equal results."""

import itertools

import pytest
import torch

from testbed.gpu import DEVICES
from voiceagent_tts.engine.cuda_graph import Stream


@pytest.mark.parametrize("device", DEVICES[1:])
def test_an_old_graph_does_not_break_a_capture(device: str) -> None:
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
