"""What a training run is told, and the order of its clips. Knows no weights."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.training.batches import Layout
from voiceagent_tts.plugins.training.dataset import Example

TrainPrecision = Literal["bfloat16", "mixed", "float32"]
"""`bfloat16`: weights and products, as the official recipe. `mixed`: weights in float32, products
in bfloat16. `float32`: both."""

FULL_LEARNING_RATE, LORA_LEARNING_RATE = 2e-5, 2e-4
LORA_RANK = 32
"""Rank of low-rank adapters where nothing else is said to the command line."""
_RANGES = {
    "epochs": (1, 1_000_000),
    "batch_clips": (1, 10_000),
    "accumulation": (1, 10_000),
    "learning_rate": (1e-12, 1),
    "weight_decay": (0, 1),
    "max_norm": (1e-6, 1_000_000),
    "lora_rank": (0, 1024),
    "evaluate_steps": (0, 1_000_000_000),
    "patience": (0, 1_000_000_000),
    "seed": (0, 2**32 - 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Everything that decides the weights of a run; defaults are those of `sft_12hz.py`.

    Attributes:
        epochs: passes over all clips.
        batch_clips: clips in a batch.
        accumulation: batches in a step of the optimizer.
        learning_rate: constant learning rate.
        weight_decay: of AdamW.
        max_norm: norm that gradients are clipped to.
        lora_rank: inner width of low-rank adapters; 0 trains all weights.
        precision: precision of weights and products.
        recompute: whether layers recompute their activations in the backward pass.
        recipe: `aligned`, or `official` for the loss of the official script.
        layout: place of the text.
        validation_share: share of the clips that is held out.
        evaluate_steps: steps between two evaluations; 0 evaluates after each epoch.
        patience: evaluations without a lower validation loss that end the run; 0 never ends it.
        seed: of the order of clips and of the adapters.
    """

    epochs: int = 3
    batch_clips: int = 2
    accumulation: int = 4
    learning_rate: float = FULL_LEARNING_RATE
    weight_decay: float = 0.01
    max_norm: float = 1.0
    lora_rank: int = 0
    precision: TrainPrecision = "mixed"
    recompute: bool = True
    recipe: Literal["aligned", "official"] = "aligned"
    layout: Layout = "whole"
    validation_share: float = 0.05
    evaluate_steps: int = 0
    patience: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        check_ranges(self, _RANGES)
        if not 0 <= self.validation_share < 1:
            raise _invalid("validation_share", "0 to below 1", self.validation_share)
        if self.patience and not self.validation_share:
            raise _invalid("patience", "0 without held-out clips", self.patience)


def split_examples(
    examples: Sequence[Example], share: float
) -> tuple[list[Example], list[Example]]:
    """Divide clips into those to train on and those held out, by a hash of their names.

    A clip keeps its side when others are added.

    Raises:
        InvalidRequestError: no clip is left to train on.
    """
    ranked = sorted(examples, key=lambda e: hashlib.sha256(e.name.encode()).digest())
    held = max(1, round(share * len(ranked))) if share else 0
    if held >= len(ranked):
        raise InvalidRequestError(
            f"expected at least {held + 1} clips, got {len(ranked)}; add recordings, or train "
            "with --validation-share 0"
        )
    return ranked[held:], ranked[:held]


def plan_steps(clips: int, options: TrainOptions) -> list[list[list[int]]]:
    """Return the clips of every batch of every step of a run; the last of an epoch may be smaller.

    Args:
        clips: number of clips to train on.
        options: options of the run; the plan depends on nothing else.
    """
    steps: list[list[list[int]]] = []
    for epoch in range(options.epochs):
        generator = torch.Generator().manual_seed(options.seed * 1_000_003 + epoch)
        order = torch.randperm(clips, generator=generator).tolist()
        batches = _groups(order, options.batch_clips)
        steps += _groups(batches, options.accumulation)
    return steps


def evaluation_steps(clips: int, options: TrainOptions) -> set[int]:
    """Return the numbers of finished steps after which a run is evaluated and saved."""
    total = len(plan_steps(clips, options))
    interval = options.evaluate_steps or total // options.epochs
    return {*range(interval, total, interval), total}


def _groups(items: list, size: int) -> list[list]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def check_ranges(options: object, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Check the numbers of options, by the names of their attributes; NaN is in no range.

    Raises:
        InvalidRequestError: a number is below the first or above the second of its range.
    """
    for name, (least, most) in ranges.items():
        if not least <= (value := getattr(options, name)) <= most:
            raise _invalid(name, f"a number from {least} to {most}", value)


def _invalid(name: str, expected: str, got: object) -> InvalidRequestError:
    option = "--" + name.replace("_", "-")
    return InvalidRequestError(f"{option}: expected {expected}, got {got}")
