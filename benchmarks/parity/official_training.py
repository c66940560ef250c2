"""Runs the official training code on a tiny checkpoint, and records its losses and gradients.

Runs in the official package's environment, started by `training_fixture`. The code that runs is
`finetuning/sft_12hz.py` of the official repository, unchanged. Only the arguments of the model's
loader and of the accelerator differ, float32 on a CPU instead of bfloat16 on a GPU, and a recorder
stands where the accelerator's backward pass and gradient clipping are called.

    python -m benchmarks.parity.official_training SCRIPTS MODEL DATA OUT RECORD
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.engine.peer_packages import UNUSED, stand_in
from testbed.training_record import BATCH_ROWS, FULL_STEPS, LEARNING_RATE, project

SPEAKER = "anna"


class Recorder:
    """What the official code computed.

    Attributes:
        losses: loss of every batch.
        norms: norm of the gradients of every step, before clipping.
        gradients: steps -> name of a tensor -> its gradient.
        order: numbers of the clips in the order of training.
        batches: tensors of the first batch.
    """

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.gradients: list[dict[str, np.ndarray]] = []
        self.order: list[int] = []
        self.batches: dict[str, np.ndarray] = {}

    def save(self, path: Path) -> None:
        """Write everything as one `.npz`."""
        arrays: dict[str, Any] = {"losses": self.losses, "norms": self.norms, "order": self.order}
        arrays |= {f"batch.{name}": array for name, array in self.batches.items()}
        for step, gradients in enumerate(self.gradients, start=1):
            projected = [project(gradient) for gradient in gradients.values()]
            arrays[f"projected.{step}"] = np.stack(projected)
            if step in FULL_STEPS:
                arrays |= {f"gradient.{step}.{name}": g for name, g in gradients.items()}
        arrays["names"] = list(self.gradients[0])
        np.savez_compressed(path, **arrays)


def main() -> None:
    """Train, and write the record."""
    scripts, model, data, out, record = sys.argv[1:]
    sys.path.insert(0, scripts)
    importlib.import_module("transformers")  # it checks which packages are installed
    stand_in(name for name in UNUSED if not name.startswith("librosa"))
    sft = importlib.import_module("sft_12hz")
    recorder = Recorder()
    _run_on_cpu(sft, recorder)
    _record_order(sft.TTSDataset, recorder)
    torch.manual_seed(0)
    sys.argv = [
        "sft_12hz.py", "--init_model_path", model, "--output_model_path", out,
        "--train_jsonl", data, "--batch_size", str(BATCH_ROWS), "--lr", str(LEARNING_RATE),
        "--num_epochs", "1", "--speaker_name", SPEAKER,
    ]  # fmt: skip
    sft.train()
    recorder.save(Path(record))


def _run_on_cpu(sft: Any, recorder: Recorder) -> None:
    load = sft.Qwen3TTSModel.from_pretrained
    model: list[Any] = []

    class OnCPU(sft.Accelerator):
        def __init__(self, **options: Any) -> None:
            steps = options["gradient_accumulation_steps"]
            super().__init__(gradient_accumulation_steps=steps, cpu=True, mixed_precision="no")

        def backward(self, loss: torch.Tensor, **options: Any) -> None:
            recorder.losses.append(loss.item())
            super().backward(loss, **options)

        def clip_grad_norm_(self, parameters: Any, *limits: Any) -> torch.Tensor:
            recorder.gradients.append(
                {
                    name: parameter.grad.numpy().copy()
                    for name, parameter in model[0].named_parameters()
                    if parameter.grad is not None
                }
            )
            norm = super().clip_grad_norm_(parameters, *limits)
            recorder.norms.append(float(norm))
            return norm

    def load_on_cpu(path: str, **options: Any) -> Any:
        loaded = load(path, torch_dtype=torch.float32, attn_implementation="eager")
        model.append(loaded.model)
        return loaded

    sft.Accelerator = OnCPU
    sft.Qwen3TTSModel.from_pretrained = staticmethod(load_on_cpu)


def _record_order(dataset: Any, recorder: Recorder) -> None:
    get, collate = dataset.__getitem__, dataset.collate_fn

    def recorded_get(self: Any, number: int) -> Any:
        recorder.order.append(number)
        return get(self, number)

    def recorded_collate(self: Any, batch: Any) -> Any:
        collated = collate(self, batch)
        if not recorder.batches:
            recorder.batches = {name: tensor.numpy() for name, tensor in collated.items()}
        return collated

    dataset.__getitem__, dataset.collate_fn = recorded_get, recorded_collate


if __name__ == "__main__":
    main()
