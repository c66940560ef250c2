"""How many operations does a GPU launch for a frame of a published model?

The passes of a frame, prefills and calls of the codec run on tensors that have shapes and a device
but no values. The device is not the CPU, so a tensor that is left there is an error, and so is an
operation whose shape depends on data. Views launch nothing, and a Triton kernel is one launch. Some
of PyTorch's operations are several launches (a matrix product with few rows, a sort), so the counts
are lower bounds. Runs anywhere; fused kernels need Triton, but no GPU.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import torch
import typer
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.common.report import provenance, publish
from testbed.random_weights import PUBLISHED, PUBLISHED_CODEC
from testbed.recorded_graphs import are_views, tensors
from voiceagent_tts.engine import passes as passes_module
from voiceagent_tts.engine.cuda_graph import plainly
from voiceagent_tts.engine.generate import make_samplers
from voiceagent_tts.engine.passes import Passes, empty_rows
from voiceagent_tts.engine.row_table import record_type
from voiceagent_tts.engine.sizes import WINDOWS_FRAMES, graph_sizes
from voiceagent_tts.model.checkpoint import build_network, building
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.kv_pool import empty_pool, pages_for
from voiceagent_tts.model.layers import Kernels
from voiceagent_tts.model.sampling import SamplingParams

_CAPACITY = 1024
_NOTHING = ("empty", "new_empty", "empty_like", "empty_strided", "detach")
"""Operations that launch nothing, in addition to views."""

Launches = Counter[str]
"""Launches by the name of the operation or kernel."""


@cache
def _device() -> torch.device:
    """The first CUDA device; where PyTorch is built without CUDA, one that stands for it.

    The stand-in is registered for the whole process, so tests count in a process of their own.
    """
    if torch.version.cuda is not None:
        return torch.device("cuda", 0)
    backend_registration._setup_privateuseone_for_python_backend("standin")
    return torch.device("standin", 0)


class _Operations(TorchDispatchMode):
    def __init__(self, launches: Launches) -> None:
        super().__init__()
        self._launches = launches

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        reads, made = tensors((args, kwargs)), tensors(result)
        if name == "conv2d":
            # cuDNN keeps the order of the weight, and adds the bias in a launch of its own.
            result = result.contiguous(memory_format=torch.channels_last)
            self._launches["bias of conv2d"] += len(reads) > 2
        is_view = bool(reads) and are_views(made, reads)
        if made and name not in _NOTHING and (func._schema.is_mutable or not is_view):
            self._launches[name] += 1
        return result


@contextmanager
def _counting(kernels: Kernels) -> Iterator[Launches]:
    launches = Launches()
    with torch.inference_mode(), _Operations(launches):
        if kernels == "plain":
            yield launches
            return
        from triton import JITFunction

        def note(kernel: Any, *args: Any, **options: Any) -> None:
            name = kernel.__name__
            assert all(one.device == _device() for one in tensors(args)), f"{name}: not on the GPU"
            launches[name] += 1

        with patch.object(JITFunction, "run", note):
            yield launches


class _Upload:
    """Stands for `cuda_graph.Upload` and `cuda_graph.Download`, which need pinned memory."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.tensor = torch.zeros(shape, dtype=dtype, device=device)


def _passes(kernels: Kernels, rows: int) -> Passes:
    network = build_network(PUBLISHED, torch.bfloat16, _device(), "sdpa", kernels)
    network.code_predictor.fold(network.talker.codec_embedding)
    shapes = graph_sizes(rows, _CAPACITY, has_windows=kernels == "plain").talker
    pool = empty_pool(PUBLISHED.talker_config, rows, network.talker.codec_embedding)
    layout = record_type(network.codebooks, pages_for(shapes.positions))
    samplers = make_samplers([SamplingParams()], kernels)
    with (
        patch.object(passes_module, "Upload", _Upload),
        patch.object(passes_module, "Download", _Upload),
    ):
        state = empty_rows(network, rows, _CAPACITY, pool)
        return Passes(network, state, layout, shapes, *samplers, compile=plainly)


def _codec(rows: int, kernels: Kernels) -> Callable[[int, int], Tensor]:
    with building(torch.float32, _device()):
        decoder = CodecDecoder(PUBLISHED_CODEC)
    if kernels == "fused":
        decoder.fuse()
    state = decoder.new_state(rows + 1, max(WINDOWS_FRAMES))
    codebooks = PUBLISHED_CODEC.num_quantizers

    def call(count: int, frames: int) -> Tensor:
        codes = torch.zeros(count, codebooks, frames, dtype=torch.int64, device=_device())
        places = torch.zeros(count, dtype=torch.int64, device=_device())
        return decoder.decode(codes, state, places)

    return call


def count_launches(kernels: Kernels, rows: int) -> dict[str, Launches]:
    """Count the launches of every pass and every call of the codec of an engine with `rows` rows.

    Raises:
        RuntimeError: a tensor is not on the device.
        AssertionError: a tensor of a Triton kernel is not.
    """
    counted: dict[str, Launches] = {}
    with FakeTensorMode(), torch.inference_mode():
        passes, codec = _passes(kernels, rows), _codec(rows, kernels)
        calls = {" ".join(map(str, key)): passes.calls[key] for key in passes.keys()}
        for frames, counts in graph_sizes(rows, _CAPACITY).codec.items():
            calls |= {f"codec {count} {frames}": partial(codec, count, frames) for count in counts}
        for name, call in calls.items():
            with _counting(kernels) as counted[name]:
                call()
    return counted


def main(kernels: Kernels = "fused", rows: int = 64) -> None:
    """Count the launches of every pass by its name and sizes; the last line is JSON."""
    counted = count_launches(kernels, rows)
    totals = {name: launches.total() for name, launches in counted.items()}
    publish({"kernels": kernels, "rows": rows, "launches": totals, **provenance()})


if __name__ == "__main__":
    typer.run(main)
