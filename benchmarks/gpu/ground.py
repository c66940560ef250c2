"""Where a section runs, and on which models.

With `--size tiny` models are so small that all sections run on a CPU in little time; what they
measure there means nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.record import Notes
from benchmarks.random_models.model import (
    RandomModel,
    published_random_model,
    tiny_random_model,
)
from voiceagent_tts.engine.options import Qwen3Options

_CAPACITY = 512
_POSITIONS, _TINY_POSITIONS = 200, 40


@dataclass(frozen=True, slots=True)
class Ground:
    """Conditions of a section.

    Attributes:
        device_name: `cuda` or `cpu`.
        is_tiny: whether models are tiny ones.
        folder: folder for checkpoints and packages.
        notes: the section's figures, each kept as soon as it is finished.
    """

    device_name: str
    is_tiny: bool
    folder: Path
    notes: Notes

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

    @property
    def positions(self) -> int:
        """Positions that rows look back over."""
        return _TINY_POSITIONS if self.is_tiny else _POSITIONS

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

    def options(self, size: str, rows: int, **options: Any) -> Qwen3Options:
        """Return a server's options for such a model with `rows` rows."""
        fields: dict[str, Any] = {"capacity": _CAPACITY, "precision": self.precision, **options}
        return Qwen3Options(self.model(size).name, self.device_name, rows=rows, **fields)

    def rows(self, wanted: tuple[int, ...]) -> tuple[int, ...]:
        """Return the numbers of rows that are worth the time here."""
        return (1, 3) if self.is_tiny else wanted

    def steps(self, wanted: int) -> int:
        """Return the number of steps, or rounds, that is worth the time here."""
        return min(wanted, 4) if self.is_tiny else wanted
