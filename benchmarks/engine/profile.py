"""Which kernels take the time of a frame: the code predictor, the talker and the codec, each alone.

Each part is captured as a graph where that is possible, and replayed. Of a part are reported: the
time of a replay, the least bytes that it must move and the bandwidth that this makes; the kernels
of the replays that take longest; and the operations of a run without graphs that take longest,
whose shapes tell how many bytes they move. Bytes of a kernel of Triton are those of its arguments
without the talker's keys and values. On a CPU the operations of the processor are reported.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.engine.frame_passes import frame_passes
from benchmarks.engine.loading import GraphFault
from benchmarks.engine.roofline import Roofline
from voiceagent_tts.engine.cuda_graph import Compile, Stream, plainly
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.network import Network

TOP = 30
_PROFILED_REPLAYS = 3
_TIMED_REPLAYS, _TIMED_CPU_REPLAYS = 20, 3
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::linear")
_LOOKUPS = ("index", "embedding", "gather", "scatter", "select")
"""Parts of the names of operations that read much less than their shapes suggest."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a frame that can be replayed.

    Attributes:
        name: name in reports.
        run: runs the part once, over tensors that stay in place.
        element_bytes: bytes of one number in its matrices.
        least_bytes: bytes that any implementation moves.
    """

    name: str
    run: Callable[[Compile], Callable[[], None]]
    element_bytes: int
    least_bytes: float


def frame_parts(
    network: Network,
    decoder: CodecDecoder,
    roofline: Roofline,
    rows: Sequence[int],
    positions: int,
    windows: Sequence[tuple[int, int]],
) -> Iterator[Part]:
    """Yield the parts of a frame: predictor and talker for each of `rows`, then the codec.

    Args:
        network: talker and code predictor.
        decoder: the codec's decoder, on the same device.
        roofline: roofline of the model, for the least bytes.
        rows: numbers of rows.
        positions: positions that the talker attends to.
        windows: calls of the codec, as (rows, frames).
    """
    size = network.talker.codec_embedding.element_size()
    capacity = positions + 1
    for count in rows:

        def predictor(compile: Compile, count: int = count) -> Callable[[], None]:
            passes = frame_passes(network, count, capacity, compile)
            passes.fill(positions)
            return passes.predict

        def talker(compile: Compile, count: int = count) -> Callable[[], None]:
            passes = frame_passes(network, count, capacity, compile)
            passes.fill(positions)
            return passes.advance

        least = roofline.predictor(count).bytes
        yield Part(f"code predictor, {count} rows", predictor, size, least)
        least = roofline.talker(count, positions).bytes
        yield Part(f"talker, {count} rows", talker, size, least)
    for count, frames in windows:
        yield codec_part(decoder, roofline, count, frames)


def codec_part(decoder: CodecDecoder, roofline: Roofline, rows: int, frames: int) -> Part:
    """Return a call of the codec that decodes `frames` frames of `rows` rows."""
    device, config = decoder.device, decoder.config

    def run(compile: Compile) -> Callable[[], None]:
        state = decoder.new_state(rows, frames)
        codes = torch.zeros(rows, config.num_quantizers, frames, dtype=torch.int64, device=device)
        numbers = torch.arange(rows, device=device)

        def decode() -> None:
            decoder.decode(codes, state, numbers)

        return compile(decode)

    size = decoder.codebooks.table.element_size()
    least = roofline.codec_window(rows, frames).bytes * size / roofline.codec_bytes
    return Part(f"codec, {rows} x {frames} frames", run, size, least)


@torch.inference_mode()
def profile_part(part: Part, device: torch.device, *, has_graphs: bool) -> dict[str, Any]:
    """Time and profile one part.

    Raises:
        GraphFault: the part cannot be captured; try again in a new process, without graphs.
    """
    stream = Stream(device, is_captured=has_graphs)
    is_gpu = device.type == "cuda"
    with stream.entered():
        try:
            replay = part.run(stream.compile)
            replay()
        except Exception as error:
            if has_graphs:
                raise GraphFault(str(error)) from error
            raise
        seconds = _seconds(replay, stream)
        kernels = _profiled(replay, device, has_shapes=False) if is_gpu else []
        plain = part.run(plainly)
        plain()
        with _counting_triton(device) as triton_bytes:
            operations = _profiled(plain, device, has_shapes=True)
    return {
        "has_graphs": stream.is_captured,
        "ms": round(seconds * 1000, 4),
        "least_mb": round(part.least_bytes / 1e6, 2),
        "gb_per_s": round(part.least_bytes / seconds / 1e9, 3),
        "kernels": _top(_kernel_lines(kernels, triton_bytes)),
        "operations": _top(_operation_lines(operations, part.element_bytes, is_gpu=is_gpu)),
    }


def _seconds(replay: Callable[[], None], stream: Stream) -> float:
    times = _TIMED_REPLAYS if stream.device.type == "cuda" else _TIMED_CPU_REPLAYS
    began = stream.mark()
    for _ in range(times):
        replay()
    ended = stream.mark()
    ended.wait()
    return ended.seconds_since(began) / times


def _profiled(run: Callable[[], None], device: torch.device, *, has_shapes: bool) -> list[Any]:
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, record_shapes=has_shapes) as profiler:
        for _ in range(_PROFILED_REPLAYS):
            run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return list(profiler.key_averages(group_by_input_shape=has_shapes))


@contextmanager
def _counting_triton(device: torch.device) -> Iterator[Counter[str]]:
    """Count the bytes of the arguments of Triton's kernels, by kernel, of all calls inside."""
    counts = Counter[str]()
    if device.type == "cpu":
        yield counts
        return
    from triton import JITFunction

    launch = JITFunction.run

    def count(kernel: Any, *args: Any, **options: Any) -> Any:
        tensors = [value for value in args if isinstance(value, Tensor)]
        # The talker's keys and values are the only arguments of more than 4 dimensions.
        counts[kernel.__name__] += sum(
            tensor.numel() * tensor.element_size() for tensor in tensors if tensor.dim() < 4
        )
        return launch(kernel, *args, **options)

    with patch.object(JITFunction, "run", count):
        yield counts


def _kernel_lines(averages: Sequence[Any], triton_bytes: Counter[str]) -> list[dict[str, Any]]:
    lines = list[dict[str, Any]]()
    for entry in averages:
        if entry.device_type != DeviceType.CUDA or not entry.self_device_time_total:
            continue
        moved = next((size for name, size in triton_bytes.items() if entry.key == name), None)
        lines.append(_line(entry.key, entry.count, entry.self_device_time_total, moved))
    return lines


def _operation_lines(
    averages: Sequence[Any], element_bytes: int, *, is_gpu: bool
) -> list[dict[str, Any]]:
    lines = list[dict[str, Any]]()
    for entry in averages:
        took_us = entry.self_device_time_total if is_gpu else entry.self_cpu_time_total
        if entry.device_type != DeviceType.CPU or not took_us:
            continue
        shapes = [list(shape) for shape in entry.input_shapes if shape]
        moved = moved_bytes(entry.key, shapes, element_bytes)
        line = _line(entry.key, entry.count, took_us, moved and moved * entry.count)
        lines.append(line | {"shapes": shapes})
    return lines


def moved_bytes(operation: str, shapes: Sequence[Sequence[int]], element_bytes: int) -> int | None:
    """Return the least bytes that one call reads and writes; None if shapes do not show them.

    Args:
        operation: name, as PyTorch's profiler has it.
        shapes: shapes of the tensors that it reads.
        element_bytes: bytes of a number.
    """
    if not shapes or any(part in operation for part in _LOOKUPS):
        return None
    read = sum(map(prod, shapes))
    if operation in _PRODUCTS:
        left, right = shapes[-2:] if operation == "aten::addmm" else shapes[:2]
        columns = right[0] if operation == "aten::linear" else right[-1]
        return element_bytes * (read + prod(left[:-1]) * columns)
    if "conv" in operation:
        return element_bytes * read
    return element_bytes * (read + max(map(prod, shapes)))


def _line(name: str, calls: int, took_us: float, moved: int | None) -> dict[str, Any]:
    """Return one line of a table, for one run of the part."""
    return {
        "name": name[:120],
        "calls": round(calls / _PROFILED_REPLAYS, 1),
        "us": round(took_us / _PROFILED_REPLAYS, 2),
        "mb": None if moved is None else round(moved / _PROFILED_REPLAYS / 1e6, 3),
        "gb_per_s": None if moved is None else round(moved / took_us / 1e3, 3),
    }


def _top(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    total = sum(line["us"] for line in lines)
    longest = sorted(lines, key=lambda line: -line["us"])[:TOP]
    return [line | {"share": round(line["us"] / total, 4)} for line in longest]
