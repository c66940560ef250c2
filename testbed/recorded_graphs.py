"""CUDA graphs on a CPU: what a function dispatches is recorded once, and replayed.

As on a GPU, a replay uses the storages of the capture and runs nothing of Python's. What a graph
computes on the way is poisoned before and after each replay, so that a read of a stale or foreign
intermediate changes the result. Operations that a capture cannot contain are refused.
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

_WARM_UPS = 2
_UNCAPTURABLE = frozenset(
    """_local_scalar_dense item nonzero masked_select _unique2 unique_dim is_pinned lift_fresh
    lift_fresh_copy normal_ uniform_ random_ bernoulli_ exponential_ multinomial rand randn
    randint repeat_interleave""".split()
)
"""Operations that wait for the device, have data-dependent shapes, copy values from the host, or
draw random numbers."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An operation as it was dispatched.

    Attributes:
        run: repeats the operation; its result, if any, is newly allocated.
        reads: tensors among its arguments.
        results: tensors that it returned, which later operations read.
    """

    run: Callable[[], Any]
    reads: tuple[Tensor, ...]
    results: tuple[Tensor, ...] = ()

    def repeat(self) -> None:
        """Run the operation again, and write its result where the recorded one was."""
        with torch.inference_mode(), _disable_current_modes():
            found = tensors(self.run())
            for old, new in zip(self.results, found, strict=False):
                if _storage_of(old) != _storage_of(new):
                    old.copy_(new)


class RecordedGraph:
    """Recorded operations over fixed storages.

    Args:
        function: reads and writes tensors in fixed places.

    Raises:
        RuntimeError: a CUDA graph cannot contain one of its operations.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        for _ in range(_WARM_UPS):
            with torch.inference_mode():
                function()
        self._operations: list[Recorded] = []
        with torch.inference_mode(), _Recording(self._operations):
            function()
        self._own = _own_storages(self._operations)

    def steps(self) -> Iterator[Callable[[], None]]:
        """Yield the parts of a replay in order, so that other work can run between them."""
        yield self._poison
        for operation in self._operations:
            yield operation.repeat
        yield self._poison

    def replay(self) -> None:
        for step in self.steps():
            step()

    def _poison(self) -> None:
        with torch.inference_mode(), _disable_current_modes():
            for tensor in self._own:
                poison(tensor)


@contextmanager
def recorded_graphs() -> Iterator[None]:
    """Within the block, let new streams on a CPU capture functions as recorded graphs."""

    def capture(function: Callable[[], None]) -> Callable[[], None]:
        return RecordedGraph(function).replay

    with patch.object(cuda_graph, "new_capture", lambda device, stream: capture):
        yield


def tensors(nested: Any) -> tuple[Tensor, ...]:
    return tuple(leaf for leaf in tree_flatten(nested)[0] if isinstance(leaf, Tensor))


def poison(tensor: Tensor) -> None:
    """Overwrite the whole storage of a tensor with values that no computation expects."""
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    if tensor.dtype.is_floating_point:
        whole.fill_(float("nan"))
    else:
        is_flag = tensor.dtype == torch.bool
        whole.fill_(True if is_flag else torch.iinfo(tensor.dtype).max // 3)


def are_views(results: Iterable[Tensor], reads: Iterable[Tensor]) -> bool:
    """Whether all results are in the memory of what was read."""
    held = {_storage_of(tensor) for tensor in reads}
    return all(_storage_of(result) in held for result in results)


class _Recording(TorchDispatchMode):
    """Records PyTorch's operations on a tape, without views and checks of shapes."""

    def __init__(self, tape: list[Recorded]) -> None:
        super().__init__()
        self._tape = tape

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
            self._tape.append(Recorded(lambda: func(*args, **options), reads, results))
        return result


def _has_mask(args: tuple[Any, ...]) -> bool:
    """Whether an index is a mask, whose number of elements only the device knows."""
    return any(tensor.dtype == torch.bool for tensor in tensors(args[1:2]))


def _storage_of(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _own_storages(operations: Iterable[Recorded]) -> list[Tensor]:
    """Return a tensor on each storage that the operations allocate."""
    foreign, own = set[int](), dict[int, Tensor]()
    for operation in operations:
        foreign |= {_storage_of(tensor) for tensor in operation.reads} - own.keys()
        for result in operation.results:
            if _storage_of(result) not in foreign:
                own.setdefault(_storage_of(result), result)
    return list(own.values())
