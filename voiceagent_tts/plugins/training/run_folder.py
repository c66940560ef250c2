"""The folder of a training run: what it was told, where it stands, and its best weights.

run.json              dataset, base model and options
state.pt              trained tensors, optimizer and position, to resume from
weights.safetensors   trained tensors with the lowest validation loss; without held-out clips,
                      the latest
tensorboard/          losses, and samples of the voice
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from voiceagent_tts.errors import CheckpointError, EngineError, InvalidRequestError
from voiceagent_tts.plugins.training.files import written
from voiceagent_tts.plugins.training.options import TrainOptions

RUN_FILE, STATE_FILE, WEIGHTS_FILE = "run.json", "state.pt", "weights.safetensors"

_DAMAGED = (
    OSError, LookupError, RuntimeError, UnpicklingError, EOFError, TypeError, ValueError
)  # fmt: skip
"""What PyTorch raises for a file that it has not written, or not to its end."""


@dataclass(slots=True)
class Position:
    """Where a run stands.

    Attributes:
        step: finished steps of the optimizer.
        best_loss: lowest validation loss, or None before the first evaluation.
        best_step: step of that loss.
        stale: evaluations since.
    """

    step: int = 0
    best_loss: float | None = None
    best_step: int = 0
    stale: int = 0


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Files of one run."""

    path: Path

    def begin(self, dataset: Path, base: Path, options: TrainOptions) -> None:
        """Write `run.json`, or check that a run that is resumed was told the same.

        Raises:
            InvalidRequestError: the folder holds a run with other options.
        """
        document = {
            "dataset": str(dataset.resolve()),
            "base": str(base.resolve()),
            "options": asdict(options),
        }
        if (self.path / RUN_FILE).exists():
            _check_equal(self.path, self.read(), document)
            return
        self.path.mkdir(parents=True, exist_ok=True)
        with written(self.path / RUN_FILE) as unfinished:
            unfinished.write_text(json.dumps(document, indent=1), "utf-8")

    def read(self) -> dict[str, Any]:
        """Return `run.json`.

        Raises:
            InvalidRequestError: the folder holds no run.
        """
        try:
            document = json.loads((self.path / RUN_FILE).read_text("utf-8"))
            TrainOptions(**document["options"])
            return document
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidRequestError(
                f"{self.path}: expected the folder of a run of `voiceagent-tts finetune train`; "
                f"{type(error).__name__}"
            ) from error

    def save_state(
        self, network: nn.Module, optimizer: torch.optim.Optimizer, position: Position
    ) -> None:
        """Write everything that a resumed run needs; a reader sees the old file or the new one."""
        state = {
            "weights": dict(trained(network)),
            "optimizer": optimizer.state_dict(),
            "position": asdict(position),
        }
        with written(self.path / STATE_FILE) as unfinished:
            torch.save(state, unfinished)

    def load_state(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> Position:
        """Restore what `save_state` wrote; without it, a run starts at its beginning.

        Raises:
            CheckpointError: the file is damaged, or belongs to another network.
        """
        path = self.path / STATE_FILE
        if not path.exists():
            return Position()
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            restore(network, state["weights"])
            optimizer.load_state_dict(state["optimizer"])
            return Position(**state["position"])
        except _DAMAGED as error:
            raise CheckpointError(
                f"{path}: expected the state of this run, got {type(error).__name__}; "
                "delete the file to start again"
            ) from error

    def save_weights(self, network: nn.Module) -> None:
        """Write the trained tensors, to be exported.

        Raises:
            EngineError: they are not finite.
        """
        weights = {name: tensor.detach().contiguous() for name, tensor in trained(network)}
        for name, tensor in weights.items():
            check_finite(name, tensor)
        with written(self.path / WEIGHTS_FILE) as unfinished:
            save_file(weights, unfinished)

    def load_weights(self, network: nn.Module) -> None:
        """Read the trained tensors.

        Raises:
            CheckpointError: the run has written none yet, or they are damaged.
        """
        path = self.path / WEIGHTS_FILE
        try:
            restore(network, load_file(path))
        except (OSError, SafetensorError, KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"{path}: expected the weights of a run, got {type(error).__name__}; "
                "train until its first evaluation"
            ) from error


def trained(network: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters that training changes, with their names."""
    return [(name, p) for name, p in network.named_parameters() if p.requires_grad]


def check_finite(name: str, numbers: Tensor | float) -> None:
    """Check what a run computes: a model with NaN or infinity makes no speech.

    Raises:
        EngineError: one of the numbers is not finite.
    """
    if not torch.as_tensor(numbers).isfinite().all():
        raise EngineError(
            f"{name}: expected finite numbers, got NaN or infinity; train into another folder "
            "with a lower --learning-rate"
        )


def restore(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy trained tensors into a network.

    Raises:
        KeyError: a tensor is missing.
        RuntimeError: a tensor has another shape.
    """
    with torch.no_grad():
        for name, parameter in trained(network):
            parameter.copy_(tensors[name])


def _check_equal(path: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    flat = {"dataset": now["dataset"], "base": now["base"], **now["options"]}
    stored = {"dataset": before["dataset"], "base": before["base"], **before["options"]}
    changed = [
        f"{name} was {stored.get(name)!r} and is {value!r}"
        for name, value in flat.items()
        if stored.get(name) != value
    ]
    if changed:
        raise InvalidRequestError(
            f"{path}: holds a run with other options: {'; '.join(changed)}; resume it with the "
            "same, or train into another folder"
        )
