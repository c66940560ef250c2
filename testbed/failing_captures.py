"""Fault injection: CUDA graphs whose capture fails, on any device.

Needs neither a GPU nor a test framework, so that benchmarks can use it too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from voiceagent_tts.engine import cuda_graph
from voiceagent_tts.engine.cuda_graph import Capture

FAULT = "operation not permitted when stream is capturing"


@contextmanager
def failing_captures(after: int = 0) -> Iterator[None]:
    """Within the block, make every new stream fail to capture after `after` captured functions."""

    def new_capture(device: torch.device, stream: torch.cuda.Stream | None) -> Capture:
        done = 0

        def capture(function: Callable[[], None]) -> Callable[[], None]:
            nonlocal done
            if done == after:
                raise RuntimeError(FAULT)
            done += 1
            return function

        return capture

    before = cuda_graph.new_capture
    cuda_graph.new_capture = new_capture
    try:
        yield
    finally:
        cuda_graph.new_capture = before
