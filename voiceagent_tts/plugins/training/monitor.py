"""Writes what a run computes where people look: TensorBoard's files."""

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from voiceagent_tts.plugins.training.recipe import Losses


class Monitor:
    """Writes losses to a folder.

    Args:
        folder: folder of the event files.
        step: steps that are finished; what an interrupted run wrote beyond them is hidden.
    """

    def __init__(self, folder: Path, step: int) -> None:
        self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def step(self, step: int, losses: list[Losses], norm: float) -> None:
        """Write the mean losses of a step's batches, and the norm of its gradients."""
        for name in ("total", "talker", "predictor"):
            mean = sum(float(getattr(each, name)) for each in losses) / len(losses)
            self._writer.add_scalar(f"train/{name}", mean, step)
        self._writer.add_scalar("train/gradient_norm", norm, step)

    def validation(self, step: int, loss: float) -> None:
        """Write a validation loss."""
        self._writer.add_scalar("validation/total", loss, step)
        self._writer.flush()

    def close(self) -> None:
        """Write what is still in memory."""
        self._writer.close()
