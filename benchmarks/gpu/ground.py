"""Where a section runs, and on which models; run in a process of its own.

With `--size tiny` models are so small that all sections run on a CPU in little time; what they
measure there means nothing.
"""

import importlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from benchmarks.gpu.plan import SECTIONS
from benchmarks.gpu.record import Record
from benchmarks.random_models.model import (
    RandomModel,
    published_random_model,
    tiny_random_model,
)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Ground:
    """Conditions of a section.

    Attributes:
        device_name: `cuda` or `cpu`.
        is_tiny: whether models are tiny ones.
        folder: folder for checkpoints and packages.
        record: figures of the run, each kept as soon as it is finished.
        section: the section's name in the record.
    """

    device_name: str
    is_tiny: bool
    folder: Path
    record: Record
    section: str

    def keep(self, value: Any, *path: str) -> None:
        """Add a finished figure under `path`."""
        self.record.keep(self.section, path, value)

    def keep_all(self, figures: Mapping[str, Any]) -> None:
        """Add several finished figures, each under its name."""
        for name, value in figures.items():
            self.keep(value, name)

    def figures(self, name: str) -> dict[str, Any]:
        """Return the finished figures in the object `name`."""
        return self.record.figures().get(self.section, {}).get(name, {})

    @property
    def device(self) -> torch.device:
        """Device that is measured."""
        return torch.device(self.device_name)

    @property
    def dtype(self) -> torch.dtype:
        """Precision that is served on the device."""
        return torch.float32 if self.device_name == "cpu" else torch.bfloat16

    @property
    def precision(self) -> str:
        """Name of `dtype`."""
        return str(self.dtype).removeprefix("torch.")

    def model(self, size: str) -> RandomModel:
        """Return a CustomVoice model of a size, with random weights in memory."""
        if self.is_tiny:
            return tiny_random_model(self.folder)
        return published_random_model(size, self.folder, self.device_name)

    def checkpoint(self, size: str) -> Path:
        """Return the folder of such a model with its weights in files, made if it does not exist.

        For a server, which loads a model by its folder.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        model = self.model(size)
        return model.ready_folder(self.folder / f"{model.name}-files")

    def worth(self, full: _T, tiny: _T) -> _T:
        """Return the number of rows or steps, say, that is worth the time here."""
        return tiny if self.is_tiny else full


def measure(ground: Ground) -> None:
    """Measure a section; it keeps every figure as soon as it is finished."""
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.INFO)
    if ground.is_tiny:
        torch.set_num_threads(1)  # on tiny tensors more threads only add waiting
    section = SECTIONS[ground.section]
    module, _, function = section.measure.partition(".")
    code = importlib.import_module(f"benchmarks.gpu.{module}")
    getattr(code, function)(ground, **section.arguments)
