"""The process of one section of `benchmarks.gpu`: `python -m benchmarks.gpu.section NAME`."""

import argparse
import importlib
import logging
from pathlib import Path

import torch

from benchmarks.gpu.ground import Ground
from benchmarks.gpu.plan import SECTIONS
from benchmarks.gpu.record import RESULTS, Notes, Record


def measure(name: str, ground: Ground) -> None:
    """Measure a section; it keeps every figure as soon as it is finished."""
    section = SECTIONS[name]
    module, _, function = section.measure.partition(".")
    code = importlib.import_module(f"benchmarks.gpu.{module}")
    getattr(code, function)(ground, **section.arguments)


def main() -> None:
    """Run one section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("section", choices=tuple(SECTIONS))
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoints and packages")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="full", choices=("full", "tiny"))
    options = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.INFO)
    notes = Notes(Record(options.out / RESULTS), options.section)
    ground = Ground(options.device, options.size == "tiny", options.folder, notes)
    if ground.is_tiny:
        torch.set_num_threads(1)  # on tiny tensors more threads only add waiting
    measure(options.section, ground)


if __name__ == "__main__":
    main()
