"""The process of one section of `benchmarks.gpu`: finds its code, runs it, ends with its parent.

A section keeps every figure as soon as it is finished. Where CUDA graphs cannot be captured, the
process starts itself again without graphs: a failed capture can leave the GPU unusable.
"""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch

from benchmarks.engine.bench import ROWS
from benchmarks.engine.loading import GraphFault
from benchmarks.gpu import engine_sections as driven
from benchmarks.gpu import served_sections as served
from benchmarks.gpu.ground import Ground
from benchmarks.gpu.record import RESULTS, Notes, Record
from testbed.failing_captures import failing_captures

_QUICK_ROWS = (1, 64, 256)
_VARIANT_ROWS = (1, 16, 64)
_engine = partial(driven.engine, size="1.7b", rows=_VARIANT_ROWS)

SECTIONS: Mapping[str, Callable[[Ground], None]] = {
    "machine": driven.machine,
    "faults": driven.faults,
    "quick-1.7b": partial(driven.engine, size="1.7b", rows=_QUICK_ROWS),
    "plain-codec": partial(driven.engine, size="1.7b", rows=_QUICK_ROWS, codec_kernels="plain"),
    "checkpoints": served.checkpoints,
    "load-1.7b": partial(served.load, size="1.7b", rates=(1, 20, 60), together=(256, 64)),
    "load-aligned": partial(
        served.load, size="1.7b", rates=(20,), together=(64,), aligner="online"
    ),
    "tests": served.tests,
    "paced-1.7b": partial(served.load, size="1.7b", rates=(), together=(256,), max_lead_s=0.5),
    "engine-1.7b": partial(driven.engine, size="1.7b", rows=ROWS),
    "engine-0.6b": partial(driven.engine, size="0.6b", rows=ROWS),
    "cap-1.7b": partial(driven.memory_cap, size="1.7b", gigabytes=8.0),
    "cap-0.6b": partial(driven.memory_cap, size="0.6b", gigabytes=6.0),
    "plain": partial(_engine, attention="sdpa", kernels="plain"),
    "flash": partial(_engine, attention="flash", kernels="plain"),
}


def _end_with(parent: int) -> None:
    """End this process and all processes that it started when the other end of a pipe closes."""

    def wait() -> None:
        os.read(parent, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Run one section."""
    options = _parser().parse_args()
    if options.parent is not None:
        _end_with(options.parent)
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.INFO)
    notes = Notes(Record(options.out / RESULTS), options.section)
    ground = Ground(
        options.device, options.size == "tiny", options.folder, notes,
        not options.without_graphs,
    )  # fmt: skip
    if ground.is_tiny:
        torch.set_num_threads(1)  # on tiny tensors more threads only add waiting
    is_failing = options.failing_captures and not options.without_graphs
    try:
        with failing_captures() if is_failing else nullcontext():
            SECTIONS[options.section](ground)
    except GraphFault as fault:
        if options.without_graphs:
            raise
        print(f"!!! graphs cannot be captured; again without:\n{fault.details}", flush=True)
        notes.keep(fault.details, "capture_fault")
        argv = [sys.executable, "-u", "-m", "benchmarks.gpu.sections", *sys.argv[1:]]
        os.execv(sys.executable, [*argv, "--without-graphs"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.sections", description=__doc__)
    parser.add_argument("section", choices=tuple(SECTIONS))
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoints and packages")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="full", choices=("full", "tiny"))
    parser.add_argument("--parent", type=int, help="descriptor of a pipe that the parent holds")
    parser.add_argument("--without-graphs", action="store_true")
    parser.add_argument("--failing-captures", action="store_true", help="fault injection")
    return parser


if __name__ == "__main__":
    main()
