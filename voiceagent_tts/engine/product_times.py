"""Times the kernels for matrix products on this CPU, and remembers the times in a file.

Kernels and shapes take turns, so that most weights have left the caches when their turn comes
again, as in a frame. Turns are taken until every kernel has repeated its best time. Times are
stored per processor, number of threads and PyTorch release. A machine that is too busy to repeat
them has none: there the slowest kernel can look like the fastest, and stored, such times would slow
every later start. A file that cannot be read is measured again; one that cannot be written costs
the next start the same seconds. Knows no network.
"""

import json
import logging
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from voiceagent_tts.model.layers import Linear
from voiceagent_tts.model.products import Kernel, fits, make, works

_REPEATS = 3
"""Turns whose times have to agree."""
_AGREE = 1.15
"""Ratio of the slowest of these to the fastest. A busy machine slows turns by several times."""
_MOST_S = 2.0
"""Seconds of turns for one number of rows, after which measuring ends without times."""
_PROC = Path("/proc/cpuinfo")
_PROC_LINES = ("model name", "cpu family", "model", "cache size")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shape:
    """A product: sizes of its weight, and the precision of its inputs and outputs."""

    outputs: int
    inputs: int
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{self.outputs}x{self.inputs} {str(self.dtype).removeprefix('torch.')}"


Times = Mapping[str, float]
"""Microseconds by kernel: the geometric mean over the numbers of rows."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of products.

    Attributes:
        times: of every shape that was asked for; of a machine that is too busy to measure now, only
            of those that the file had.
        measured_s: seconds that measuring took; 0 if the file had all times.
    """

    times: Mapping[Shape, Times]
    measured_s: float


def times_file() -> Path:
    """Return the file in the user's cache folder, or in the temporary one of a user without."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no home
        home = Path(tempfile.gettempdir())
    return home / "voiceagent-tts" / "products.json"


def time_products(wanted: Mapping[Shape, Collection[Kernel]], rows: int) -> Timing:
    """Time products, except those whose times are in the file.

    Args:
        wanted: shapes, and kernels that are usable for them.
        rows: largest number of rows; measured are the powers of two up to it.
    """
    file, machine = times_file(), _machine(rows)
    known = _read(file)
    here = known.get(machine, {})
    missing = {
        shape: kernels
        for shape, kernels in wanted.items()
        if any(kernel not in here.get(str(shape), {}) for kernel in kernels)
    }
    began_s = time.perf_counter()
    measured = _measure(missing, rows)
    measured_s = time.perf_counter() - began_s if missing else 0.0
    for shape, times in measured.items():
        here.setdefault(str(shape), {}).update(times)
    if measured:
        _write(file, {**known, machine: here})
    elif missing:
        _logger.warning(
            "this machine is too busy to time matrix products: kernels are taken that are seldom "
            "slow, and seldom the fastest; the next start times them again"
        )
    had = wanted.keys() - missing.keys() | measured.keys()
    return Timing({shape: here[str(shape)] for shape in wanted if shape in had}, measured_s)


def is_usable(kernel: Kernel, shape: Shape) -> bool:
    """Return whether a kernel can compute products of this shape on this machine."""
    return fits(kernel, shape.outputs, shape.inputs) and works(kernel, shape.dtype)


def stored_times() -> dict[str, dict[str, float]]:
    """Return the stored times of this processor and PyTorch: microseconds by shape and kernel."""
    prefix = f"{_processor()};"
    found: dict[str, dict[str, float]] = {}
    for machine, shapes in _read(times_file()).items():
        if machine.startswith(prefix):
            for shape, times in shapes.items():
                found.setdefault(shape, {}).update(times)
    return found


Key = TypeVar("Key")


def steady_times(
    calls: Mapping[Key, Callable[[], object]],
    most_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Key, float]:
    """Call each in turns until its best times agree; return its best.

    Args:
        calls: what is timed.
        most_s: seconds after which times that do not agree are given up.
        clock: seconds.

    Returns:
        Seconds by key; nothing if the times of one or more do not agree.
    """
    best_s: dict[Key, list[float]] = {key: [] for key in calls}
    end_s = clock() + most_s
    while clock() < end_s:
        for key, call in calls.items():
            began_s = clock()
            call()
            best_s[key] = sorted([*best_s[key], clock() - began_s])[:_REPEATS]
        if all(map(_agree, best_s.values())):
            return {key: times[0] for key, times in best_s.items()}
    return {}


def _agree(times: list[float]) -> bool:
    return len(times) == _REPEATS and times[-1] <= _AGREE * times[0]


@torch.inference_mode()
def _measure(
    wanted: Mapping[Shape, Collection[Kernel]], rows: int
) -> dict[Shape, dict[str, float]]:
    """Return microseconds by shape and kernel; nothing if the machine is too busy."""
    layers = {
        (shape, kernel): make(kernel, _linear(shape))
        for shape, kernels in wanted.items()
        for kernel in kernels
    }
    logarithms = dict.fromkeys(layers, 0.0)
    counts = [2**power for power in range(rows.bit_length())]
    for count in counts:
        inputs = {shape: torch.randn(count, shape.inputs).to(shape.dtype) for shape in wanted}
        best_s = steady_times(
            {key: partial(layer, inputs[key[0]]) for key, layer in layers.items()}, _MOST_S
        )
        if not best_s:
            return {}
        for key, taken_s in best_s.items():
            logarithms[key] += math.log(taken_s * 1e6) / len(counts)
    return {
        shape: {kernel: round(math.exp(logarithms[shape, kernel]), 1) for kernel in kernels}
        for shape, kernels in wanted.items()
    }


def _linear(shape: Shape) -> Linear:
    linear = Linear(1, 1)
    row = torch.randn(shape.inputs).to(shape.dtype)  # times do not depend on the numbers
    linear.weight.data = row.expand(shape.outputs, -1).contiguous()
    return linear


def _machine(rows: int) -> str:
    return f"{_processor()}; {torch.get_num_threads()} threads; up to {rows} rows"


def _processor() -> str:
    try:
        lines = _PROC.read_text().partition("\n\n")[0].splitlines()
    except OSError:
        lines = []
    facts: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        facts[name.strip()] = value.strip()
    named = [facts[name] for name in _PROC_LINES if name in facts]
    processor = " ".join(named) or platform.processor() or platform.machine()
    return f"{processor} {torch.backends.cpu.get_cpu_capability()}; torch {torch.__version__}"


def _read(file: Path) -> dict[str, dict[str, dict[str, float]]]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, dict[str, dict[str, float]]]", found) if _is_sound(found) else {}


def _is_sound(found: Any) -> bool:
    """Return whether a file has the structure that `_write` gave it."""
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        return False
    times = [times for shapes in found.values() for times in shapes.values()]
    return all(isinstance(each, dict) for each in times) and all(
        isinstance(value, float) and math.isfinite(value) and value > 0
        for each in times
        for value in each.values()
    )


def _write(file: Path, times: Mapping[str, Any]) -> None:
    """Replace the file in one step, because workers that start together all write it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            part = Path(folder) / file.name
            part.write_text(json.dumps(times, indent=1))
            part.replace(file)
    except OSError as error:
        _logger.info("times of matrix products cannot be stored, %s", error)
