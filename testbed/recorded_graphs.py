"""CUDA graphs on a CPU: what a function dispatches is recorded once, and replayed.

As on a GPU, a replay uses the storages of the capture and runs nothing of Python's. What a graph
computes on the way is poisoned before and after each replay, so that a read of a stale or foreign
intermediate changes the result. Operations that a capture cannot contain are refused. Interpreted
Triton kernels are recorded like any other operation. Needs neither a GPU nor a test framework.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten

from voiceagent_tts.engine import cuda_graph
from voiceagent_tts.engine.cuda_graph import Capture

_WARM_UPS = 2
_UNCAPTURABLE = frozenset(
    """_local_scalar_dense item nonzero masked_select _unique2 unique_dim is_pinned lift_fresh
    lift_fresh_copy normal_ uniform_ random_ bernoulli_ exponential_ multinomial rand randn
    randint repeat_interleave""".split()
)
"""Operations that wait for the device, have data-dependent shapes, copy values from the host, or
draw random numbers."""


@dataclass(slots=True)
class Totals:
    """What was recorded and replayed in a block.

    Attributes:
        graphs: number of captured functions.
        operations: number of recorded operations of PyTorch, without views.
        launches: number of recorded launches of Triton kernels.
        replays: number of replays.
    """

    graphs: int = 0
    operations: int = 0
    launches: int = 0
    replays: int = 0


@dataclass(frozen=True, slots=True)
class Recorded:
    """An operation as it was dispatched.

    Attributes:
        run: repeats the operation; its result, if any, is newly allocated.
        reads: tensors among its arguments.
        results: tensors that it returned, which later operations read.
        is_kernel: whether it launches a Triton kernel.
    """

    run: Callable[[], Any]
    reads: tuple[Tensor, ...]
    results: tuple[Tensor, ...] = ()
    is_kernel: bool = False

    def repeat(self) -> None:
        """Run the operation again, and write its result where the recorded one was."""
        with torch.inference_mode(), _disable_current_modes():
            found = tensors(self.run())
            for old, new in zip(self.results, found, strict=False):
                if storage_of(old) != storage_of(new):
                    old.copy_(new)


class RecordedGraph:
    """Recorded operations over fixed storages.

    Args:
        function: reads and writes tensors in fixed places.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        self.operations = record(function)
        """What a replay runs, in order."""
        self._own = _own_storages(self.operations)

    def steps(self) -> Iterator[Callable[[], None]]:
        """Yield the parts of a replay in order, so that other work can run between them."""
        yield self._poison
        for operation in self.operations:
            yield operation.repeat
        yield self._poison

    def replay(self) -> None:
        """Run all parts of a replay."""
        for step in self.steps():
            step()

    def _poison(self) -> None:
        with torch.inference_mode(), _disable_current_modes():
            for tensor in self._own:
                poison(tensor)


def record(function: Callable[[], None]) -> list[Recorded]:
    """Run `function`; return its operations, without views and checks of shapes.

    Raises:
        RuntimeError: a CUDA graph cannot contain one of them.
    """
    tape: list[Recorded] = []
    with torch.inference_mode(), _recording_kernels(tape), _Recording(tape):
        function()
    return tape


@contextmanager
def recorded_graphs() -> Iterator[Totals]:
    """Within the block, let new streams on a CPU capture functions as recorded graphs."""
    totals = Totals()

    def capture(function: Callable[[], None]) -> Callable[[], None]:
        graph = captured(function, totals)

        def replay() -> None:
            totals.replays += 1
            graph.replay()

        return replay

    def new_capture(device: torch.device, stream: torch.cuda.Stream | None) -> Capture:
        return capture

    with patch.object(cuda_graph, "new_capture", new_capture):
        yield totals


def captured(function: Callable[[], None], totals: Totals) -> RecordedGraph:
    """Warm up and record `function` as a capture would, and count it."""
    for _ in range(_WARM_UPS):
        with torch.inference_mode():
            function()
    graph = RecordedGraph(function)
    totals.graphs += 1
    totals.launches += sum(operation.is_kernel for operation in graph.operations)
    totals.operations += sum(not operation.is_kernel for operation in graph.operations)
    return graph


def tensors(nested: Any) -> tuple[Tensor, ...]:
    """Return all tensors in nested arguments or results."""
    return tuple(leaf for leaf in tree_flatten(nested)[0] if isinstance(leaf, Tensor))


def storage_of(tensor: Tensor) -> int:
    """Identify the memory of a tensor."""
    return tensor.untyped_storage()._cdata


def poison(tensor: Tensor) -> None:
    """Overwrite the whole storage of a tensor with values that no computation expects."""
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    if tensor.dtype.is_floating_point:
        whole.fill_(float("nan"))
    else:
        is_flag = tensor.dtype == torch.bool
        whole.fill_(True if is_flag else torch.iinfo(tensor.dtype).max // 3)


@dataclass
class _Recording(TorchDispatchMode):
    """Records PyTorch's operations.

    Attributes:
        tape: receives them.
    """

    tape: list[Recorded]

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options = kwargs or {}
        name = func.overloadpacket.__name__
        if name in _UNCAPTURABLE or (name.startswith("index") and _has_mask(args)):
            raise RuntimeError(f"expected an operation that a CUDA graph can contain, got {name}")
        result = func(*args, **options)
        reads, results = tensors((args, options)), tensors(result)
        if func._schema.is_mutable or not are_views(results, reads):
            self.tape.append(Recorded(lambda: func(*args, **options), reads, results))
        return result


def _has_mask(args: tuple[Any, ...]) -> bool:
    """Whether an index is a mask, whose number of elements only the device knows."""
    return any(tensor.dtype == torch.bool for tensor in tensors(args[1:2]))


def are_views(results: Iterable[Tensor], reads: Iterable[Tensor]) -> bool:
    """Whether all results are in the memory of what was read."""
    held = {storage_of(tensor) for tensor in reads}
    return all(storage_of(result) in held for result in results)


def _own_storages(operations: Iterable[Recorded]) -> list[Tensor]:
    """Return a tensor on each storage that the operations allocate."""
    foreign, own = set[int](), dict[int, Tensor]()
    for operation in operations:
        foreign |= {storage_of(tensor) for tensor in operation.reads} - own.keys()
        for result in operation.results:
            if storage_of(result) not in foreign:
                own.setdefault(storage_of(result), result)
    return list(own.values())


@contextmanager
def _recording_kernels(tape: list[Recorded]) -> Iterator[None]:
    """Record launches of interpreted Triton kernels, if Triton interprets in this process."""
    kind = _interpreted_kind()
    if kind is None:
        yield
        return
    launch = kind.run

    def run(kernel: Any, *args: Any, **options: Any) -> None:
        with _disable_current_modes():
            launch(kernel, *args, **options)
        repeat = lambda: launch(kernel, *args, **options)  # noqa: E731
        tape.append(Recorded(repeat, tensors(args), is_kernel=True))

    with patch.object(kind, "run", run):
        yield


def _interpreted_kind() -> Any:
    """Return the class of interpreted kernels; None where kernels are not interpreted."""
    import os

    if os.environ.get("TRITON_INTERPRET") != "1":
        return None
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction
