"""Ordered streams of device work, whose functions are captured once and replayed, and transfers.

On a GPU, a `Stream` is a CUDA stream and a function over fixed tensors becomes a CUDA graph. On a
CPU, or without graphs, the same calls run the functions plainly. Nothing else differs, and only
this module makes the choice. Arrays that a function reads or writes are copied through tensors at
fixed addresses; what the host sends stays in pinned memory until the copy is done, so that it never
waits. On a CPU these copies are plain ones.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

import numpy as np
import torch

from voiceagent_tts.garbage import without_collection

_Key = TypeVar("_Key")

TALKER_PRIORITY, CODEC_PRIORITY = -2, -1
"""Priorities of an engine's CUDA streams; a lower number goes first. Where work of both waits,
the GPU starts that of the talker, because every row waits for the end of its step, whereas the
listeners of the codec have audio left. Graphs keep the priority of the stream on which they were
captured."""

_WARM_UPS = 2
"""Calls before a capture, in which libraries choose kernels and allocate their workspaces."""

_PINNED_COPIES = 64
"""Number of sends in flight before the next one waits for the oldest."""

Compile = Callable[[Callable[[], None]], Callable[[], None]]
"""Turns a function over fixed tensors into a call that repeats its work; a capture also runs it."""


class GraphCapture:
    """Captures the functions of one stream as CUDA graphs."""

    def __init__(self, device: torch.device, stream: torch.cuda.Stream) -> None:
        self._device, self._stream = device, stream
        # Graphs of one stream never run at the same time, so they can share memory. So do the
        # workspaces of libraries, which belong to the stream that a graph was captured on.
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, function: Callable[[], None]) -> Callable[[], None]:
        """Run `function`, capture it, and return the replay of its graph."""
        graph = torch.cuda.CUDAGraph()
        # Collecting an old graph would break the capture.
        with without_collection(), torch.inference_mode(), torch.cuda.device(self._device):
            # The outer `stream` also makes the caller's stream current again if the capture fails.
            with torch.cuda.stream(self._stream):
                for _ in range(_WARM_UPS):
                    function()
                self._stream.synchronize()
                with torch.cuda.graph(
                    graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
                ):
                    function()
        return graph.replay


def new_capture(device: torch.device, stream: torch.cuda.Stream | None) -> Compile | None:
    """How functions of `stream` are captured; None on a device without graphs.

    Tests replace this function to inject captures that fail.
    """
    return None if stream is None else GraphCapture(device, stream)


def plainly(function: Callable[[], None]) -> Callable[[], None]:
    """Return `function` unchanged: the `Compile` for passes that are not captured."""
    return function


class StreamEvent:
    """Marks a point in a stream's work; on a CPU, without a stream, work is done at once."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._now_s = time.perf_counter()
        self.event = None if stream is None else torch.cuda.Event(enable_timing=True)
        if self.event is not None:
            self.event.record(stream)

    @property
    def is_past(self) -> bool:
        """Whether the stream has reached this point; does not wait."""
        return self.event is None or self.event.query()

    def wait(self) -> None:
        """Wait on the host until the stream reaches this point."""
        if self.event is not None:
            self.event.synchronize()

    def seconds_since(self, earlier: "StreamEvent") -> float:
        """Return the device seconds between two past events of one stream."""
        if self.event is None or earlier.event is None:
            return self._now_s - earlier._now_s
        return earlier.event.elapsed_time(self.event) / 1000


class Stream:
    """A queue of device work that runs in order."""

    def __init__(
        self, device: torch.device, *, is_captured: bool, priority: int = TALKER_PRIORITY
    ) -> None:
        self.device = device
        self.graphs = 0
        """Number of captured functions."""
        is_cuda = device.type == "cuda"
        self._cuda = torch.cuda.Stream(device, priority=priority) if is_cuda else None
        self._capture = new_capture(device, self._cuda) if is_captured else None
        self.is_captured = self._capture is not None
        """Whether functions become graphs."""

    def entered(self) -> AbstractContextManager[object]:
        """Return a context manager within which PyTorch's work goes to this stream."""
        return nullcontext() if self._cuda is None else torch.cuda.stream(self._cuda)

    def mark(self) -> StreamEvent:
        """Record an event after the work so far."""
        return StreamEvent(self._cuda)

    def wait_for(self, event: StreamEvent) -> None:
        """Let the work that follows wait for `event` of another stream; the host does not wait."""
        if self._cuda is not None and event.event is not None:
            self._cuda.wait_event(event.event)

    def compile(self, function: Callable[[], None]) -> Callable[[], None]:
        """Return a call that repeats `function`, which reads and writes tensors in fixed places.

        A capture runs `function` on the current contents of its tensors.
        """
        if self._capture is None:
            return function
        replay = self._capture(function)
        self.graphs += 1
        return replay


class CompiledCalls(Generic[_Key]):
    """Calls over fixed tensors by key, each compiled once."""

    def __init__(self, compile: Callable[[_Key], Callable[[], None]]) -> None:
        self._compile = compile
        self._calls: dict[_Key, Callable[[], None]] = {}
        self.is_sealed = False
        """Whether keys that are not compiled yet are refused."""

    def __getitem__(self, key: _Key) -> Callable[[], None]:
        """Return the call of `key`; compile it if needed.

        Raises:
            RuntimeError: it is not compiled, and the table is sealed.
        """
        if key not in self._calls:
            if self.is_sealed:
                raise RuntimeError(
                    f"expected a size that was captured at the start, got {key}; a capture now "
                    "would run its function on rows in use"
                )
            self._calls[key] = self._compile(key)
        return self._calls[key]


def new_event(device: torch.device) -> torch.cuda.Event | None:
    """Return an event for copies to or from `device`; None where a copy is done when it returns.

    Tests replace this function to delay copies on a CPU.
    """
    return torch.cuda.Event() if device.type == "cuda" else None


class Upload:
    """Tensor on the device that the host writes."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.tensor = torch.zeros(shape, dtype=dtype, device=device)
        is_delayed = new_event(device) is not None
        copies = range(_PINNED_COPIES if is_delayed else 1)
        is_pinned = device.type == "cuda"
        self._pinned = [torch.zeros(shape, dtype=dtype, pin_memory=is_pinned) for _ in copies]
        self._sent = [new_event(device) for _ in copies]
        self._next = 0

    def send(self, array: np.ndarray) -> None:
        """Write `array` to the leading rows, in the order of the current stream."""
        pinned, sent = self._pinned[self._next], self._sent[self._next]
        self._next = (self._next + 1) % len(self._pinned)
        if sent is not None:
            sent.synchronize()
        count = len(array)
        pinned.numpy()[:count] = array
        self.tensor[:count].copy_(pinned[:count], non_blocking=True)
        if sent is not None:
            sent.record()


class Download:
    """Tensor on the device that the host reads."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.tensor = torch.zeros(shape, dtype=dtype, device=device)
        self._received = new_event(device)
        self._pinned = self.tensor
        if self._received is not None:
            self._pinned = torch.zeros(shape, dtype=dtype, pin_memory=device.type == "cuda")

    def send(self) -> None:
        """Start the copy to the host, in the order of the current stream."""
        if self._received is not None:
            self._pinned.copy_(self.tensor, non_blocking=True)
            self._received.record()

    def receive(self) -> np.ndarray:
        """Wait for the last copy and return it; valid until the next `send`."""
        if self._received is not None:
            self._received.synchronize()
        return self._pinned.numpy()
