"""What every pass of a published model launches and moves, counted without a GPU.

Passes run on fake tensors, which have shapes and a device but no values. The device is not the CPU,
so a tensor that is left there is an error, and so is an operation whose shape depends on data.
Each operation reads its arguments and writes its results once; views do nothing, and a Triton
kernel is one launch. Some of PyTorch's operations are several launches (a matrix product with few
rows, a sort), so the counts are lower bounds. Measures no time.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from testbed.random_weights import PUBLISHED, PUBLISHED_CODEC
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

POSITIONS = 200
"""Positions of every row whose keys and values a step reads: about 15 s of speech."""
TABLE = Path(__file__).parent / "pass_work.json"
"""Work of every pass, as `benchmarks.engine.launches --save` wrote it."""
ROWS = (1, 64, 256)
"""Numbers of rows whose passes are counted."""
PROMPTS = {1: ((1, 32),), 64: ((16, 32), (2, 256)), 256: ()}
"""Prefills that are counted, as (prompts, positions), by the rows of their engine."""
_CAPACITY = 1024
_CODEC_CALLS = ((1, 1), (64, 1), (5, 12))
CODECS: tuple[Kernels, ...] = ("plain", "fused")
"""Kernels of the codec, as the table names them."""
_NOTHING = ("empty", "new_empty", "empty_like", "empty_strided", "detach")
"""Operations that launch nothing, in addition to views."""
_GATHERS = ("embedding", "index", "index_select", "gather")
"""Operations that read as much as they return, whatever the size of their argument."""
_SCATTERS = ("index_put_", "index_copy_", "scatter")
"""Operations that write as much as they are given, whatever the size of their goal."""
_ATTENTION, _INPUTS, _WINDOW = "_attend", "_write_inputs", "_attend_window"
_MIXING = "_convolve_norm"
_WRITING, _ATTENDING = "_write_heads", "_attend_prompt"
_PROMPT_PAGES = {_WRITING: 4, _ATTENDING: 1}
"""Place of the pages of keys among the tensors of a kernel for prompts."""


@cache
def fake_device() -> torch.device:
    """Return the first CUDA device; where PyTorch is built without CUDA, one that stands for it.

    The stand-in is registered for the whole process, so tests call this in a process of their own.
    """
    if torch.version.cuda is not None:
        return torch.device("cuda", 0)
    backend_registration._setup_privateuseone_for_python_backend("standin")
    return torch.device("standin", 0)


@dataclass(slots=True)
class Work:
    """What a pass does.

    Attributes:
        launches: number of launches, by the name of the operation or kernel.
        bytes: bytes read and written, by the same names.
    """

    launches: Counter[str] = field(default_factory=Counter[str])
    bytes: Counter[str] = field(default_factory=Counter[str])

    def add(self, name: str, moved_bytes: int) -> None:
        """Count an operation."""
        self.launches[name] += 1
        self.bytes[name] += moved_bytes

    @property
    def totals(self) -> dict[str, float]:
        """Launches, and megabytes with one digit."""
        return {"launches": self.launches.total(), "megabytes": round(self.bytes.total() / 1e6, 1)}


class _Operations(TorchDispatchMode):
    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options = kwargs or {}
        result = func(*args, **options)
        if func.overloadpacket.__name__ == "conv2d":  # cuDNN keeps the order of the weight
            result = result.contiguous(memory_format=torch.channels_last)
        name, reads, made = (
            func.overloadpacket.__name__,
            _tensors((args, options)),
            _tensors(result),
        )
        held = {tensor.untyped_storage()._cdata for tensor in reads}
        is_view = bool(reads) and all(one.untyped_storage()._cdata in held for one in made)
        if made and name not in _NOTHING and (func._schema.is_mutable or not is_view):
            self._note(name, reads, made)
        return result

    def _note(self, name: str, reads: list[Tensor], made: list[Tensor]) -> None:
        if name in _GATHERS:
            moved = 2 * _bytes(made)
        elif name in _SCATTERS:
            moved = 2 * _bytes(reads[1:])
        else:
            moved = _bytes(reads) + _bytes(made)
        self._work.add(name, moved)
        if name == "conv2d" and len(reads) > 2:  # cuDNN adds the bias in a launch of its own
            self._work.add("bias of conv2d", 2 * _bytes(made))


@contextmanager
def counting(kernels: Kernels) -> Iterator[Work]:
    """Count what is launched within the block, on fake tensors of a GPU."""
    work = Work()
    with torch.inference_mode(), _Operations(work):
        if kernels == "plain":
            yield work
            return
        from triton import JITFunction

        def note(kernel: Any, *args: Any, **options: Any) -> None:
            given = [one for one in args if isinstance(one, Tensor)]
            assert all(one.device == fake_device() for one in given), (
                f"{kernel.__name__}: not on the GPU"
            )
            name = kernel.__name__
            work.add(name, _kernel_bytes(name, given))

        with patch.object(JITFunction, "run", note):
            yield work


def _seen_positions(keys: Tensor) -> int:
    """Return the positions that a step attends to: in pages, or on average in a frame."""
    return POSITIONS if keys.shape[1] > POSITIONS else keys.shape[1] // 2


def _kernel_bytes(name: str, given: list[Tensor]) -> int:
    """Return what a Triton kernel reads and writes; of a pool of pages, what the rows have."""
    if name in (_INPUTS, _MIXING):
        source, written, fresh = given[0], given[-2], given[-1]
        # Of the state, the earlier inputs of the call's rows are read, and as many are written.
        earlier = 0 if fresh is source else 2 * _bytes([fresh])
        read = min(_bytes([source]), _bytes([written]))
        return read + _bytes([written]) + earlier
    if name in _PROMPT_PAGES:
        return _prompt_bytes(given, given[_PROMPT_PAGES[name]])
    if name == _WINDOW:
        heads, attended, ring = given[0], given[-1], given[3]
        earlier = PUBLISHED_CODEC.sliding_window - 1
        per_frame = math.prod(ring.shape[2:]) * ring.element_size()
        seen = len(heads) * (earlier + heads.shape[1]) * per_frame
        return _bytes([heads, attended]) + 2 * seen
    if name != _ATTENTION:
        return _bytes(given)
    heads, attended, keys = given[0], given[-1], given[4]
    rows, steps = heads.shape[:2]
    seen = (
        rows * (_seen_positions(keys) + 2 * steps) * math.prod(keys.shape[2:]) * keys.element_size()
    )
    return _bytes([heads, attended]) + 2 * seen


def _prompt_bytes(given: list[Tensor], pages: Tensor) -> int:
    """Return what a kernel for prompts moves: of the pages, the positions of the prompt once."""
    in_pages = math.prod(given[0].shape[:2]) * math.prod(pages.shape[2:]) * pages.element_size()
    others = (one for one in given if one.shape != pages.shape)
    return _bytes(others) + 2 * in_pages


def _tensors(nested: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(nested)[0] if isinstance(leaf, Tensor)]


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Return the memory of tensors; what is expanded is counted once."""
    return sum(
        one.element_size()
        * math.prod(
            n for n, stride in zip(one.shape, one.stride(), strict=True) if stride or n == 0
        )
        for one in tensors
    )


class _Upload:
    """Stands for `cuda_graph.Upload` and `cuda_graph.Download`, which need pinned memory."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.tensor = torch.zeros(shape, dtype=dtype, device=device)


def fake_passes(kernels: Kernels, rows: int) -> Passes:
    """Make the passes of the published model, on fake tensors; call within `FakeTensorMode`."""
    network = build_network(PUBLISHED, torch.bfloat16, fake_device(), "sdpa", kernels)
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


def fake_codec(rows: int, kernels: Kernels = "plain") -> Callable[[int, int], Tensor]:
    """Return a call of the published codec (rows, frames); call within `FakeTensorMode`."""
    with building(torch.float32, fake_device()):
        decoder = CodecDecoder(PUBLISHED_CODEC)
    if kernels == "fused":
        decoder.fuse()
    state = decoder.new_state(rows + 1, max(WINDOWS_FRAMES))
    codebooks = PUBLISHED_CODEC.num_quantizers

    def call(count: int, frames: int) -> Tensor:
        codes = torch.zeros(count, codebooks, frames, dtype=torch.int64, device=fake_device())
        places = torch.zeros(count, dtype=torch.int64, device=fake_device())
        return decoder.decode(codes, state, places)

    return call


def pass_work(kernels: Kernels, rows: int) -> dict[str, Work]:
    """Return the work of the passes of a frame, and of the prefills that `PROMPTS` names.

    Names are those of the table.
    """
    counted: dict[str, Work] = {}
    with FakeTensorMode(), torch.inference_mode():
        passes = fake_passes(kernels, rows)
        window = next(key[3] for key in passes.keys() if key[0] == "talker")
        prompt_window = min(key[3] for key in passes.keys() if key[0] == "prefill")
        runs: dict[str, Callable[[], object]] = {
            f"code predictor, {kernels}, {rows} rows": lambda: passes.code_predictor_step(rows),
            f"talker, {kernels}, {rows} rows": lambda: passes.talker_step(rows, window),
        }
        for count, length in PROMPTS[rows]:
            runs[f"prefill of {count} x {length}, {kernels}"] = partial(
                passes.prefill, count, length, prompt_window
            )
        for name, run in runs.items():
            with counting(kernels) as counted[name]:
                run()
    return counted


def codec_work(rows: int, frames: int, kernels: Kernels = "plain") -> Work:
    """Return the work of one call of the codec."""
    with FakeTensorMode(), torch.inference_mode():
        call = fake_codec(rows, kernels)
        with counting(kernels) as work:
            call(rows, frames)
    return work


def all_work() -> dict[str, dict[str, float]]:
    """Return the work of all passes, and of the codec."""
    found = dict[str, dict[str, float]]()
    for kernels in ("plain", "fused"):
        for count in ROWS:
            found |= {name: work.totals for name, work in pass_work(kernels, count).items()}
    for count, frames in _CODEC_CALLS:
        for kernels in CODECS:
            work = codec_work(count, frames, kernels)
            found[f"codec, {kernels}, {count} rows of {frames} frames"] = work.totals
    return found


def run_every_pass(kernels: Kernels, rows: int) -> int:
    """Run all passes and codec calls of an engine; return how many.

    Raises:
        RuntimeError: a tensor is not on the device.
        AssertionError: a tensor of a Triton kernel is not.
    """
    done = 0
    with FakeTensorMode(), torch.inference_mode():
        passes, call = fake_passes(kernels, rows), fake_codec(rows, kernels)
        for key in passes.keys():
            with counting(kernels):
                passes.calls[key]()
            done += 1
        for frames, counts in graph_sizes(rows, _CAPACITY).codec.items():
            for count in counts:
                with counting(kernels):
                    call(count, frames)
                done += 1
    return done
