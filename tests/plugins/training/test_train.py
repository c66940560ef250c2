"""Training runs on a tiny checkpoint: resuming, stopping, adapters, options and bad folders."""

import json
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from testbed.parity_reference import REFERENCE
from testbed.tiny_dataset import random_dataset, write_codes
from voiceagent_tts.errors import CheckpointError, EngineError, InvalidRequestError
from voiceagent_tts.model.config import ModelConfig, read_model_config
from voiceagent_tts.model.tokenizer import Tokenizer
from voiceagent_tts.plugins.training.batches import Batch, BatchBuilder
from voiceagent_tts.plugins.training.dataset import Example
from voiceagent_tts.plugins.training.lora import add_adapters, merged_weights
from voiceagent_tts.plugins.training.network import load_network
from voiceagent_tts.plugins.training.options import (
    TrainOptions,
    evaluation_steps,
    plan_steps,
    split_examples,
)
from voiceagent_tts.plugins.training.recipe import compute_losses
from voiceagent_tts.plugins.training.train import Outcome, Progress, TrainJob, train

BASE = REFERENCE / "base-0b6"
WIDTH = read_model_config(BASE).talker_config.hidden_size
CPU = torch.device("cpu")
QUICK = TrainOptions(
    epochs=3,
    accumulation=2,
    learning_rate=1e-3,
    precision="float32",
    validation_share=0.25,
    recompute=False,
)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Return a dataset of eight clips with random codes."""
    return random_dataset(tmp_path / "data", BASE, clips=8)


def run_of(dataset: Path, name: str, options: TrainOptions = QUICK) -> TrainJob:
    """Return a run beside its dataset."""
    return TrainJob(dataset, BASE, dataset.parent / name, CPU, options)


def speaker() -> Tensor:
    """Return a speaker embedding of the tiny model."""
    return torch.randn(WIDTH, generator=torch.Generator().manual_seed(5))


def a_batch(config: ModelConfig) -> Batch:
    """Return a batch of two clips of different lengths."""
    tokenizer = Tokenizer(BASE, config.im_start_token_id, config.im_end_token_id)
    codes = torch.randint(0, 64, (9, 16), generator=torch.Generator().manual_seed(2))
    examples = [Example("a", "Hello there.", codes), Example("b", "You?", codes[:4])]
    return BatchBuilder(config, tokenizer).build(examples)


def weights_of(job: TrainJob) -> dict[str, Tensor]:
    """Return the weights of a run's last state."""
    return torch.load(job.output / "state.pt", weights_only=True)["weights"]


@pytest.mark.parametrize(
    "rank", [pytest.param(0, id="full", marks=pytest.mark.thorough), pytest.param(4, id="lora")]
)
def test_an_interrupted_run_resumes_to_the_same_weights(dataset: Path, rank: int) -> None:
    """Weights and validation loss after two interruptions equal those of a run in one piece."""
    options = replace(QUICK, lora_rank=rank)
    whole, parts = run_of(dataset, "whole", options), run_of(dataset, "parts", options)
    assert train(whole) is Outcome.FINISHED
    seen = list[Progress]()
    for steps in (1, 4):
        assert (
            train(parts, seen.append, lambda steps=steps: len(seen) == steps) is Outcome.INTERRUPTED
        )
    assert train(parts, seen.append) is Outcome.FINISHED
    assert [each.step for each in seen] == list(range(1, seen[-1].steps + 1))
    expected, resumed = weights_of(whole), weights_of(parts)
    assert expected.keys() == resumed.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, resumed[name]), name
    best = [load_file(job.output / "weights.safetensors") for job in (whole, parts)]
    assert all(torch.equal(best[0][name], best[1][name]) for name in best[0])


def test_losses_are_in_tensorboard(dataset: Path) -> None:
    """Every step has losses, and every evaluation a validation loss."""
    job = run_of(dataset, "run")
    train(job)
    events = EventAccumulator(str(job.output / "tensorboard")).Reload()
    steps = len(plan_steps(6, QUICK))
    assert [each.step for each in events.Scalars("train/total")] == list(range(1, steps + 1))
    at = sorted(evaluation_steps(6, QUICK))
    assert [each.step for each in events.Scalars("validation/total")] == at
    first, *_, last = events.Scalars("train/total")
    assert last.value < first.value


def test_a_run_ends_when_the_validation_loss_stops_falling(dataset: Path) -> None:
    """Random codes cannot be learnt, so more training makes held-out clips worse."""
    options = replace(QUICK, epochs=40, evaluate_steps=1, patience=2, learning_rate=1e-2)
    job = run_of(dataset, "run", options)
    assert train(job) is Outcome.EARLY
    assert train(job) is Outcome.EARLY, "it does not go on when it is started again"
    position = torch.load(job.output / "state.pt", weights_only=True)["position"]
    assert position["step"] == position["best_step"] + 2


def test_recomputed_activations_give_the_same_gradients() -> None:
    """Recomputation saves memory and changes no gradient."""
    gradients = []
    for is_recomputed in (False, True):
        network = load_network(BASE, torch.float32, CPU)
        network.recompute(is_recomputed)
        compute_losses(network, a_batch(network.config), speaker()).total.backward()
        gradients.append([p.grad for p in network.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_adapters_change_nothing_at_first_and_merge_into_the_weights() -> None:
    """The loss starts as the base model's; after changes, merged weights compute the same loss."""
    plain, adapted = (load_network(BASE, torch.float32, CPU) for _ in range(2))
    add_adapters(adapted, rank=4, seed=1)
    batch = a_batch(plain.config)
    before = compute_losses(plain, batch, speaker())
    assert torch.equal(compute_losses(adapted, batch, speaker()).total, before.total)
    names = {name for name, p in adapted.named_parameters() if p.requires_grad}
    assert names and all(name.endswith((".down", ".up")) for name in names)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if name in names:
                parameter.normal_(0, 0.1, generator=torch.Generator().manual_seed(1))
    changed = compute_losses(adapted, batch, speaker()).total.detach()
    assert abs(float(changed - before.total.detach())) > 0.01
    with torch.no_grad():
        parameters = dict(plain.named_parameters())
        merged = dict(merged_weights(adapted))
        assert merged.keys() == parameters.keys()
        for name, tensor in merged.items():
            parameters[name].copy_(tensor)
    assert torch.allclose(compute_losses(plain, batch, speaker()).total, changed, atol=1e-5)


@pytest.mark.parametrize(("precision", "rank"), [("bfloat16", 4), ("mixed", 0)])
def test_half_precision_computes_nearly_the_same_loss(
    dataset: Path, precision: str, rank: int
) -> None:
    """The first step's loss is that of float32 within bfloat16's rounding."""
    losses = []
    for name, each in (("exact", "float32"), ("half", precision)):
        options = replace(QUICK, epochs=1, lora_rank=rank, precision=each)  # type: ignore[arg-type]
        seen = list[Progress]()
        train(run_of(dataset, name, options), seen.append, lambda seen=seen: len(seen) == 1)
        losses.append(seen[0].loss)
    assert losses[1] == pytest.approx(losses[0], rel=0.01)


def test_held_out_clips_stay_held_out() -> None:
    """A clip keeps its side when others are added, in any order."""
    clips = [Example(f"{n}.wav", "a", torch.zeros(1, 16)) for n in range(100)]
    learnt, held_out = split_examples(clips, 0.1)
    assert (len(learnt), len(held_out)) == (90, 10)
    again = split_examples(clips[::-1], 0.1)[1]
    assert {each.name for each in again} == {each.name for each in held_out}
    with pytest.raises(InvalidRequestError, match="expected at least 2 clips"):
        split_examples(clips[:1], 0.1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epochs", 0), ("batch_clips", -1), ("learning_rate", 0.0), ("lora_rank", -1),
        ("validation_share", 1.0), ("patience", -1), ("accumulation", 0), ("learning_rate", inf),
        ("learning_rate", 1e30), ("learning_rate", nan), ("weight_decay", -1.0),
        ("weight_decay", nan), ("max_norm", nan), ("validation_share", nan), ("seed", 10**24),
        ("lora_rank", 100_000_000),
    ],
)  # fmt: skip
def test_an_impossible_option_is_refused(field: str, value: float) -> None:
    """The error names the option of the command line."""
    with pytest.raises(InvalidRequestError, match=f"--{field.replace('_', '-')}: expected"):
        TrainOptions(**{field: value})


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_weights_that_are_not_finite_are_never_kept(
    dataset: Path, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that diverges in its last step fails, and leaves nothing to export or resume."""
    step = torch.optim.AdamW.step

    def diverge(optimizer: torch.optim.AdamW) -> None:
        step(optimizer)
        optimizer.param_groups[0]["params"][-1].data.fill_(torch.nan)

    monkeypatch.setattr(torch.optim.AdamW, "step", diverge)
    options = replace(QUICK, epochs=1, accumulation=8, validation_share=share)
    job = run_of(dataset, "run", options)
    with pytest.raises(EngineError, match="expected .*finite .*lower --learning-rate"):
        train(job)
    assert not {"weights.safetensors", "state.pt"} & {path.name for path in job.output.iterdir()}


def test_another_run_in_the_same_folder_is_refused(dataset: Path) -> None:
    """A folder holds one run; other options would mix two."""
    job = run_of(dataset, "run")
    train(job, is_stopping=lambda: True)
    other = run_of(dataset, "run", replace(QUICK, learning_rate=1e-4))
    with pytest.raises(InvalidRequestError, match=r"learning_rate was 0\.001 and is 0\.0001"):
        train(other)


def test_a_damaged_state_is_named(dataset: Path) -> None:
    """A state that cannot be read is an error that says which file to delete."""
    job = run_of(dataset, "run")
    train(job, is_stopping=lambda: True)
    path = job.output / "state.pt"
    path.write_bytes(path.read_bytes()[:5_000])
    with pytest.raises(CheckpointError, match=r"state\.pt: expected the state of this run"):
        train(job)


def test_a_dataset_of_another_model_is_refused(dataset: Path) -> None:
    """Codes out of range, and another width of the speaker, are refused before training."""
    save_file({"speaker_embedding": torch.zeros(7)}, dataset / "speaker.safetensors")
    with pytest.raises(InvalidRequestError, match="speaker embedding"):
        train(run_of(dataset, "run"))
    save_file({"speaker_embedding": speaker()}, dataset / "speaker.safetensors")
    document = json.loads((dataset / "dataset.json").read_text())
    key = document["clips"][0]["key"]
    write_codes(dataset / "clips" / f"{key}.npz", torch.full((3, 16), 64))
    document["clips"][0]["frames"] = 3
    (dataset / "dataset.json").write_text(json.dumps(document))
    with pytest.raises(InvalidRequestError, match="codes below 64, got 64"):
        train(run_of(dataset, "run"))


def test_steps_are_those_of_the_official_loader() -> None:
    """Every clip comes once an epoch; the last batch and the last step may be smaller."""
    options = TrainOptions(epochs=2, batch_clips=2, accumulation=2)
    steps = plan_steps(7, options)
    assert [[len(batch) for batch in step] for step in steps] == [[2, 2], [2, 1]] * 2
    epochs = [[clip for step in half for batch in step for clip in batch] for half in
              (steps[:2], steps[2:])]  # fmt: skip
    assert [sorted(epoch) for epoch in epochs] == [list(range(7))] * 2
    assert epochs[0] != epochs[1]
    assert evaluation_steps(7, options) == {2, 4}
    assert evaluation_steps(7, replace(options, evaluate_steps=3)) == {3, 4}
