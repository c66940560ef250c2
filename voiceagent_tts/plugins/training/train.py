"""The training loop: batches in, changed weights out, resumable after every step.

One step: for each of its batches compute the loss and its gradients; clip the gradients; let AdamW
change the weights. The order of clips follows from the options, so a run that is interrupted and
resumed makes the same steps as one that is not.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import torch
from torch import Tensor

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.model.config import ModelConfig, read_model_config
from voiceagent_tts.model.tokenizer import Tokenizer
from voiceagent_tts.plugins.training.batches import Batch, BatchBuilder
from voiceagent_tts.plugins.training.dataset import Dataset, Example, read_dataset
from voiceagent_tts.plugins.training.lora import add_adapters
from voiceagent_tts.plugins.training.monitor import Monitor
from voiceagent_tts.plugins.training.network import TrainingNetwork, load_network
from voiceagent_tts.plugins.training.options import (
    TrainOptions,
    evaluation_steps,
    plan_steps,
    split_examples,
)
from voiceagent_tts.plugins.training.recipe import RECIPES, Losses, compute_losses
from voiceagent_tts.plugins.training.run_folder import RunFolder, check_finite, trained


class Outcome(StrEnum):
    """Why a run ended."""

    FINISHED = "finished"
    EARLY = "stopped early"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands, for a progress bar.

    Attributes:
        step: finished steps.
        steps: all steps.
        loss: training loss of the last step.
        validation_loss: lowest validation loss, or None.
    """

    step: int
    steps: int
    loss: float
    validation_loss: float | None


@dataclass(frozen=True, slots=True)
class TrainJob:
    """What is trained, and where.

    Attributes:
        dataset: folder of a prepared dataset.
        base: folder of the Base model.
        output: folder of the run; a run that is there is resumed.
        device: device of the weights.
        options: everything that decides the weights.
    """

    dataset: Path
    base: Path
    output: Path
    device: torch.device
    options: TrainOptions


def build_network(base: Path, options: TrainOptions, device: torch.device) -> TrainingNetwork:
    """Load a Base model's network with the parameters that these options train."""
    frozen = options.lora_rank > 0 and options.precision == "mixed"
    is_half = frozen or options.precision == "bfloat16"
    network = load_network(base, torch.bfloat16 if is_half else torch.float32, device)
    if options.lora_rank:
        add_adapters(network, options.lora_rank, options.seed)
    network.recompute(options.recompute)
    return network


def make_optimizer(network: TrainingNetwork, options: TrainOptions) -> torch.optim.Optimizer:
    """Return AdamW over the parameters that train."""
    parameters = [parameter for _, parameter in trained(network)]
    return torch.optim.AdamW(
        parameters, lr=options.learning_rate, weight_decay=options.weight_decay
    )


class Trainer:
    """Trains one network on one dataset.

    Args:
        network: changed in place.
        builder: builds batches for the network's checkpoint.
        speaker_embedding: [D] float32.
        options: options of the run.
    """

    def __init__(
        self,
        network: TrainingNetwork,
        builder: BatchBuilder,
        speaker_embedding: Tensor,
        options: TrainOptions,
    ) -> None:
        self.network = network
        self.optimizer = make_optimizer(network, options)
        self._builder = builder
        self._options = options
        self._device = next(network.parameters()).device
        self._speaker = speaker_embedding.to(self._device)
        self._recipe = RECIPES[options.recipe]

    def take_step(self, batches: Sequence[Sequence[Example]]) -> tuple[list[Losses], float]:
        """Change the weights once; return the losses of the batches and the gradients' norm."""
        losses = [self.add_gradients(examples) for examples in batches]
        return losses, self.update()

    def add_gradients(self, examples: Sequence[Example]) -> Losses:
        """Add the gradients of one batch to those of its step; return its losses."""
        losses = self._losses(examples)
        (losses.total / self._options.accumulation).backward()
        return losses.detach()

    def update(self) -> float:
        """Change the weights by the step's gradients; return their norm before clipping.

        Raises:
            EngineError: the gradients are not finite.
        """
        parameters = [parameter for _, parameter in trained(self.network)]
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self._options.max_norm))
        check_finite("gradients", norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm

    @torch.no_grad()
    def evaluate(self, examples: Sequence[Example]) -> float:
        """Return the mean loss of clips."""
        size = self._options.batch_clips
        total = 0.0
        for start in range(0, len(examples), size):
            part = examples[start : start + size]
            total += float(self._losses(part).total) * len(part)
        return total / len(examples)

    def _losses(self, examples: Sequence[Example]) -> Losses:
        batch: Batch = self._builder.build(examples).to(self._device)
        with self._products():
            return compute_losses(self.network, batch, self._speaker, self._recipe)

    def _products(self) -> AbstractContextManager:
        is_on = self._options.precision != "float32"
        return torch.autocast(self._device.type, torch.bfloat16, enabled=is_on)


def train(
    job: TrainJob,
    show: Callable[[Progress], None] = lambda progress: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train, from the beginning or from where a run in the same folder stands.

    Args:
        job: what is trained.
        show: called after each step.
        is_stopping: asked before each step; if True, the run is saved and ends.

    Raises:
        InvalidRequestError: the dataset or the options do not fit the model or the folder.
        CheckpointError: the model's or the run's files are damaged.
        EngineError: the loss, the gradients or the weights are no longer finite.
    """
    run = _Run(job)
    try:
        while run.position.step < len(run.steps):
            if run.is_stale():
                return Outcome.EARLY
            if is_stopping():
                run.save()
                return Outcome.INTERRUPTED
            loss = run.take_step()
            if run.position.step in run.evaluated:
                run.evaluate()
                run.save()
            show(Progress(run.position.step, len(run.steps), loss, run.position.best_loss))
        return Outcome.FINISHED
    finally:
        run.monitor.close()


class _Run:
    """A run in its folder: the trainer, its clips, and its position."""

    def __init__(self, job: TrainJob) -> None:
        options = job.options
        dataset = read_dataset(job.dataset)
        self.learnt, self.held_out = split_examples(dataset.examples, options.validation_share)
        self.steps = plan_steps(len(self.learnt), options)
        self.evaluated = evaluation_steps(len(self.learnt), options)
        config = read_model_config(job.base)
        tokenizer = Tokenizer(job.base, config.im_start_token_id, config.im_end_token_id)
        builder = BatchBuilder(config, tokenizer, options.layout)
        _check_fit(dataset, builder, config)
        self._job = job
        self._folder = RunFolder(job.output)
        self._folder.begin(job.dataset, job.base, options)
        network = build_network(job.base, options, job.device)
        self._trainer = Trainer(network, builder, dataset.speaker_embedding, options)
        self.position = self._folder.load_state(network, self._trainer.optimizer)
        self.monitor = Monitor(job.output / "tensorboard", self.position.step)

    def is_stale(self) -> bool:
        """Return whether the validation loss has not fallen for as long as the options allow."""
        return 0 < self._job.options.patience <= self.position.stale

    def take_step(self) -> float:
        """Take the next step; return the loss of its last batch."""
        batches = self.steps[self.position.step]
        losses, norm = self._trainer.take_step(
            [[self.learnt[clip] for clip in batch] for batch in batches]
        )
        self.position.step += 1
        self.monitor.step(self.position.step, losses, norm)
        return float(losses[-1].total)

    def evaluate(self) -> None:
        """Compute the validation loss, and keep the best weights."""
        network, position = self._trainer.network, self.position
        loss = self._trainer.evaluate(self.held_out) if self.held_out else None
        if loss is not None:
            check_finite("validation loss", loss)
            self.monitor.validation(position.step, loss)
        if loss is None or position.best_loss is None or loss < position.best_loss:
            position.best_loss, position.best_step, position.stale = loss, position.step, 0
            self._folder.save_weights(network)
        else:
            position.stale += 1

    def save(self) -> None:
        """Write what a resumed run needs."""
        self._folder.save_state(self._trainer.network, self._trainer.optimizer, self.position)


def _check_fit(dataset: Dataset, builder: BatchBuilder, config: ModelConfig) -> None:
    """Check that a dataset was prepared for this model."""
    talker = config.talker_config
    codes_end = talker.code_predictor_config.vocab_size
    width = [talker.hidden_size]
    if list(dataset.speaker_embedding.shape) != width:
        raise _unfit(f"a speaker embedding {width}", list(dataset.speaker_embedding.shape))
    for example in dataset.examples:
        shape = example.codes.shape
        if len(shape) != 2 or shape[1] != talker.num_code_groups or not shape[0]:
            raise _unfit(f"frames of {talker.num_code_groups} codes", list(shape))
        if not 0 <= int(example.codes.min()) <= int(example.codes.max()) < codes_end:
            raise _unfit(f"codes below {codes_end}", int(example.codes.max()))
        if builder.positions(example) > talker.max_position_embeddings:
            raise _unfit(
                f"at most {talker.max_position_embeddings} positions", builder.positions(example)
            )


def _unfit(expected: str, got: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"dataset: expected {expected}, got {got}; prepare it with the model that is trained"
    )
