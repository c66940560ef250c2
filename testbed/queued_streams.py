"""Streams on a CPU whose work waits in queues, and an adversary who chooses what runs when.

As on a GPU, only the order within a stream and the events between streams bind the work; everything
else may happen early, late, or in turns. Captured functions are recorded graphs, whose parts are
queued one by one. A missing wait, or a buffer that is used again too early, changes the results of
some order.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only

from testbed.recorded_graphs import Recorded, RecordedGraph, are_views, poison, tensors
from voiceagent_tts.engine import cuda_graph, runner

Order = Literal["eager", "random", "codec first", "talker first"]
"""`eager` runs everything as soon as it can run."""

_MOST_IN_A_BURST = 3
"""Parts that may run after each call of the host."""


class Adversary:
    """All queues of a device, and the order in which they run.

    Args:
        order: what is preferred.
        seed: seed of its choices.

    Attributes:
        queues: the streams' queues, the talker's first.
        current: queues of the streams that were entered, the innermost last.
        ran: number of parts that were run.
    """

    def __init__(self, order: Order, seed: int = 0) -> None:
        self.queues: list[Queue] = []
        self.current: list[Queue] = []
        self.ran = 0
        self._order = order
        self._choices = random.Random(seed)
        self._is_running = False

    def let_run(self) -> None:
        most = self._choices.randrange(_MOST_IN_A_BURST + 1)
        if self._is_running:
            return
        self._is_running = True
        try:
            while (most > 0 or self._order == "eager") and (queue := self._choice()):
                queue.run_one()
                most -= 1
        finally:
            self._is_running = False

    def _choice(self) -> "Queue | None":
        """Choose a queue whose next part can run; None to let everything wait."""
        candidates = self.queues
        if self._order.endswith("first") and self._choices.random() < 0.95:
            is_codec = self._order == "codec first"
            candidates = self.queues[-1:] if is_codec else self.queues[:-1]
        ready = [queue for queue in candidates if queue.is_ready]
        return self._choices.choice(ready) if ready else None


class Queue:
    """Work of one stream that was submitted and has not run."""

    def __init__(self, adversary: Adversary) -> None:
        self.done = 0
        self._adversary = adversary
        self._parts: list[Callable[[], None] | QueuePoint | None] = []
        adversary.queues.append(self)

    @property
    def is_ready(self) -> bool:
        if self.done == len(self._parts):
            return False
        part = self._parts[self.done]
        return not isinstance(part, QueuePoint) or part.is_past

    def put(self, part: "Callable[[], None] | QueuePoint") -> None:
        """Submit a part; a place in another queue is waited for."""
        self._parts.append(part)
        self._adversary.let_run()

    def put_mark(self) -> "QueuePoint":
        """Submit a mark, which is past once it has run itself, as a CUDA event is."""
        self.put(lambda: None)
        return QueuePoint(self, len(self._parts))

    def run_one(self) -> None:
        """Run the next part, which must be ready."""
        part, self._parts[self.done] = self._parts[self.done], None
        self.done += 1
        if part is not None and not isinstance(part, QueuePoint):
            self._adversary.ran += 1
            with torch.inference_mode(), _disable_current_modes():
                part()

    def run_until(self, end: int) -> None:
        """Run the parts up to `end`, and those that they wait for in other queues."""
        while self.done < end:
            part = self._parts[self.done]
            if isinstance(part, QueuePoint):
                part.queue.run_until(part.end)
            self._adversary.let_run()
            if self.done < end and self.is_ready:
                self.run_one()


@dataclass(frozen=True, slots=True)
class QueuePoint:
    """A point in a queue: the end of its first `end` parts."""

    queue: Queue
    end: int

    @property
    def is_past(self) -> bool:
        return self.queue.done >= self.end


class _Deferred(TorchDispatchMode):
    """Submits PyTorch's operations to a queue instead of running them."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue = queue

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options = kwargs or {}
        reads = tensors((args, options))
        if func._schema.is_mutable:
            self._queue.put(Recorded(lambda: func(*args, **options), reads).repeat)
            return args[0]
        if not reads:
            return func(*args, **options)
        if func.is_view and are_views(tensors(view := func(*args, **options)), reads):
            return view  # a reshape that copies is marked as a view, too
        result = _unfilled(func, args, options)
        self._queue.put(Recorded(lambda: func(*args, **options), reads, tensors(result)).repeat)
        return result


def _unfilled(func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return poisoned tensors of the shapes that an operation returns."""
    if "device" in options:
        options = options | {"device": "meta"}
    shapes = func(*tree_map_only(Tensor, _shape, args), **tree_map_only(Tensor, _shape, options))

    def allocate(shape: Tensor) -> Tensor:
        made = torch.empty_strided(shape.shape, shape.stride(), dtype=shape.dtype)
        poison(made)
        return made

    return tree_map_only(Tensor, allocate, shapes)


def _shape(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


class QueuedStream:
    """Has the interface of `cuda_graph.Stream`."""

    is_captured = True

    def __init__(self, adversary: Adversary, device: torch.device) -> None:
        self.device, self.graphs = device, 0
        self.queue = Queue(adversary)
        self._adversary = adversary

    @contextmanager
    def entered(self) -> Iterator[None]:
        self._adversary.current.append(self.queue)
        try:
            with _Deferred(self.queue):
                yield
        finally:
            self._adversary.current.pop()

    def mark(self) -> "QueuedEvent":
        return QueuedEvent(self._adversary, self.queue.put_mark())

    def wait_for(self, event: "QueuedEvent") -> None:
        assert event.place is not None
        if event.place.queue is not self.queue:
            self.queue.put(event.place)

    def compile(self, function: Callable[[], None]) -> Callable[[], None]:
        graph = RecordedGraph(function)
        self.graphs += 1

        def replay() -> None:
            for step in graph.steps():
                self.queue.put(step)

        return replay


class QueuedEvent:
    """Has the interfaces of `cuda_graph.StreamEvent` and of `torch.cuda.Event`."""

    def __init__(self, adversary: Adversary, place: QueuePoint | None = None) -> None:
        self._adversary, self.place = adversary, place

    @property
    def is_past(self) -> bool:
        self._adversary.let_run()
        return self.place is None or self.place.is_past

    def wait(self) -> None:
        if self.place is not None:
            self.place.queue.run_until(self.place.end)

    synchronize = wait

    def record(self) -> None:
        if self._adversary.current:
            self.place = self._adversary.current[-1].put_mark()

    def seconds_since(self, earlier: "QueuedEvent") -> float:
        for event in (self, earlier):
            assert event.place is None or event.place.is_past, "expected the time of a past event"
        return 1e-3


@contextmanager
def queued_streams(order: Order, seed: int = 0) -> Iterator[Adversary]:
    adversary = Adversary(order, seed)

    def new_stream(device: torch.device, *, is_captured: bool, priority: int = 0) -> QueuedStream:
        return QueuedStream(adversary, device)

    with (
        patch.object(runner, "Stream", new_stream),
        patch.object(cuda_graph, "new_event", lambda device: QueuedEvent(adversary)),
    ):
        yield adversary
