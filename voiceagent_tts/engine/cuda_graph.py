"""A queue of work on a device, whose functions are captured once and replayed.

On a GPU a `Lane` is a stream, and a function over fixed tensors becomes a CUDA graph; on a CPU, or
without graphs, the same calls run the same functions plainly. That is the only difference, and it
is decided here. Knows nothing of what the functions compute.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

_WARM_UPS = 2
"""Calls before a capture: libraries choose kernels and take their workspaces in the first ones."""


class Moment:
    """When a lane gets to a place in its work.

    Args:
        stream: of the lane; None where work is done when it is asked for.
    """

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._now_s = time.perf_counter()
        self.event = None if stream is None else torch.cuda.Event(enable_timing=True)
        if self.event is not None:
            self.event.record(stream)

    @property
    def is_past(self) -> bool:
        """Whether the lane has got there; does not wait."""
        return self.event is None or self.event.query()

    def wait(self) -> None:
        """Wait on the host until the lane gets there."""
        if self.event is not None:
            self.event.synchronize()

    def seconds_since(self, earlier: "Moment") -> float:
        """Seconds of the device between two moments of a lane that are past."""
        if self.event is None or earlier.event is None:
            return self._now_s - earlier._now_s
        return earlier.event.elapsed_time(self.event) / 1000


class Lane:
    """Work that is done in its order.

    Args:
        device: where.
        is_captured: whether functions become graphs; False on a CPU.
    """

    def __init__(self, device: torch.device, *, is_captured: bool) -> None:
        self.device = device
        self.graphs = 0
        """How many functions were captured."""
        is_cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if is_cuda else None
        self._is_captured = is_captured and is_cuda
        # Graphs of a lane run one after the other, so that they can share what they take; graphs
        # of two lanes run at the same time. So do the workspaces of libraries, which belong to
        # the stream that a graph was captured on: it is the one that it is replayed on.
        self._pool = torch.cuda.graph_pool_handle() if self._is_captured else None

    def entered(self) -> AbstractContextManager[object]:
        """Inside, PyTorch's work is this lane's."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def mark(self) -> Moment:
        """This place in the lane's work."""
        return Moment(self._stream)

    def wait_for(self, moment: Moment) -> None:
        """What follows in this lane comes after `moment` of another; the host does not wait."""
        if self._stream is not None and moment.event is not None:
            self._stream.wait_event(moment.event)

    def compile(self, function: Callable[[], None]) -> Callable[[], None]:
        """What does the same as `function`, which reads and writes tensors that stay in place.

        A function that is captured has run when this returns: with whatever its tensors held.
        """
        if not self._is_captured or self._stream is None:
            return function
        graph = torch.cuda.CUDAGraph()
        with _without_collection(), torch.inference_mode(), torch.cuda.device(self.device):
            with torch.cuda.stream(self._stream):
                for _ in range(_WARM_UPS):
                    function()
            self._stream.synchronize()
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                function()
        self.graphs += 1
        return graph.replay


@contextmanager
def _without_collection() -> Iterator[None]:
    """Inside, Python collects no garbage: an old graph among it would break a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
