"""The loss, against the official training code and against the network that speaks."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import torch.nn.functional as F
from torch import Tensor

from testbed.parity_reference import REFERENCE
from voiceagent_tts.model.attention import Keys
from voiceagent_tts.model.checkpoint import (
    Checkpoint,
    building,
    fill,
    load_checkpoint,
    open_weights,
)
from voiceagent_tts.model.config import read_model_config
from voiceagent_tts.model.network import PromptIds
from voiceagent_tts.model.tokenizer import Tokenizer
from voiceagent_tts.plugins.recordings.speaker_encoder import SpeakerEncoder
from voiceagent_tts.plugins.training.batches import IGNORED, Batch, BatchBuilder, Layout
from voiceagent_tts.plugins.training.dataset import Example
from voiceagent_tts.plugins.training.network import load_network
from voiceagent_tts.plugins.training.options import TrainOptions
from voiceagent_tts.plugins.training.recipe import ALIGNED, compute_losses
from voiceagent_tts.plugins.training.train import Trainer

LEARNING_RATE = 1e-3
BATCH_ROWS = 2
FULL_STEPS = (1, 10)
"""Steps whose gradients were recorded in full."""
_PROJECTIONS = 8


def project(gradient: np.ndarray) -> np.ndarray:
    """Return the dot products of a gradient with fixed random signs: [8] float64.

    Gradients of all steps would be megabytes; two that differ have different projections.
    """
    return _signs(gradient.size) @ gradient.astype(np.float64).ravel()


@cache
def _signs(size: int) -> np.ndarray:
    return np.random.RandomState(size).choice((-1.0, 1.0), size=(_PROJECTIONS, size))


FOLDER = REFERENCE / "training"
BASE = FOLDER / "base"
TOLERANCE = 1e-5
CPU = torch.device("cpu")


@cache
def recorded() -> dict[str, np.ndarray]:
    """Return what the official training code computed; tests/reference/README.md says how."""
    with np.load(FOLDER / "recorded.npz") as arrays:
        return dict(arrays)


def batch_builder(base: Path, layout: Layout = "whole") -> BatchBuilder:
    """Return the builder of a checkpoint's batches."""
    config = read_model_config(base)
    tokenizer = Tokenizer(base, config.im_start_token_id, config.im_end_token_id)
    return BatchBuilder(config, tokenizer, layout)


def official_clips() -> list[Example]:
    """Return the clips that the official code was given."""
    clips = json.loads((FOLDER / "clips.json").read_text())
    return [
        Example(str(number), clip["text"], torch.tensor(clip["audio_codes"]))
        for number, clip in enumerate(clips)
    ]


def speaker_embedding() -> Tensor:
    """Return the embedding of the reference that the official code was given."""
    config = read_model_config(BASE)
    with building(torch.float32, CPU):
        encoder = SpeakerEncoder(config.speaker_encoder_config)
    fill(encoder.weights(), open_weights(BASE), BASE)
    samples, _ = soundfile.read(REFERENCE / "reference.wav", dtype="float32")
    return encoder.embed(torch.from_numpy(samples)).clone()


def official_steps(accumulation: int) -> Iterator[list[list[Example]]]:
    """Yield the batches of each step in the official code's order."""
    clips = official_clips()
    order = recorded()["order"].reshape(-1, accumulation, BATCH_ROWS)
    for step in order:
        yield [[clips[number] for number in batch] for batch in step]


def test_inputs_are_the_official_ones() -> None:
    """Ids, masks and labels of a batch equal those of the official `collate_fn`."""
    clips = official_clips()
    batch = batch_builder(BASE).build([clips[n] for n in recorded()["order"][:BATCH_ROWS]])
    official = {
        name.removeprefix("batch."): array
        for name, array in recorded().items()
        if name.startswith("batch.")
    }
    assert np.array_equal(batch.text_ids, official["input_ids"][..., 0])
    assert np.array_equal(batch.codec_ids.clamp(min=0), official["input_ids"][..., 1])
    assert np.array_equal(batch.codec_ids >= 0, official["codec_embedding_mask"][..., 0])
    assert np.array_equal(batch.codes, official["codec_ids"])
    assert np.array_equal(batch.is_frame, official["codec_mask"])
    assert np.array_equal(batch.is_used, official["text_embedding_mask"][..., 0])
    assert np.array_equal(batch.is_used, official["attention_mask"])
    assert np.array_equal(batch.targets, official["codec_0_labels"])
    assert IGNORED == -100


def test_ten_steps_are_the_official_ones() -> None:
    """Loss and gradients of ten steps, and the weights after them, equal the official code's."""
    options = TrainOptions(learning_rate=LEARNING_RATE, precision="float32", recipe="official")
    network = load_network(BASE, torch.float32, CPU)
    trainer = Trainer(network, batch_builder(BASE), speaker_embedding(), options)
    official = recorded()
    losses = list[float]()
    for step, batches in enumerate(official_steps(options.accumulation), start=1):
        losses += [float(trainer.add_gradients(batch).total) for batch in batches]
        gradients = {
            name: parameter.grad.numpy()
            for name, parameter in network.named_parameters()
            if parameter.grad is not None
        }
        assert set(gradients) == set(official["names"]), "the same parts train"
        for name, expected in zip(official["names"], official[f"projected.{step}"], strict=True):
            assert np.allclose(project(gradients[name]), expected, rtol=0, atol=TOLERANCE), name
            if step in FULL_STEPS:
                full = official[f"gradient.{step}.{name}"]
                assert np.allclose(gradients[name], full, rtol=0, atol=TOLERANCE), name
        assert trainer.update() == pytest.approx(official["norms"][step - 1], rel=TOLERANCE)
    assert len(losses) == len(official["losses"]) == 40
    assert np.allclose(losses, official["losses"], rtol=0, atol=TOLERANCE)
    official_weights = open_weights(FOLDER / "trained")
    for name, parameter in network.named_parameters():
        after = torch.empty_like(parameter)
        official_weights[name].read_into(after)
        if name == "talker.model.codec_embedding.weight":
            after[3000] = parameter[3000].detach()  # the official code has put the speaker there
        # AdamW divides by the size of a gradient, and so enlarges the rounding of tiny ones.
        assert torch.allclose(parameter, after, rtol=0, atol=LEARNING_RATE / 10), name


class _WholeSequence:
    """`KVCache` of a pass over whole sequences."""

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> Keys:
        return Keys(keys, values, lengths=keys.shape[1])


@pytest.mark.parametrize("layout", ["whole", "streaming"])
@pytest.mark.parametrize("base", [REFERENCE / "base-0b6", BASE], ids=["0b6", "1b7"])
@torch.no_grad()
def test_the_loss_is_how_surprised_the_speaking_network_is(base: Path, layout: Layout) -> None:
    """The mean surprise at each code, by the network that `serve` runs, is the aligned loss."""
    checkpoint = load_checkpoint(base)
    generator = torch.Generator().manual_seed(3)
    examples = [
        Example(text, text, torch.randint(0, 64, (frames, 16), generator=generator))
        for text, frames in (("Hello there.", 7), ("You, too?", 12))
    ]
    builder = batch_builder(base, layout)
    width = checkpoint.config.talker_config.hidden_size
    speaker = torch.randn(width, generator=generator)
    network = load_network(base, torch.float32, CPU)
    losses = compute_losses(network, builder.build(examples), speaker, ALIGNED)
    surprises = [_surprise(checkpoint, builder.build([each]), speaker) for each in examples]
    talker, predictor = (torch.cat(parts).mean() for parts in zip(*surprises, strict=True))
    assert float(losses.talker) == pytest.approx(float(talker), abs=1e-5)
    assert float(losses.predictor) == pytest.approx(float(predictor), abs=1e-5)


def _surprise(checkpoint: Checkpoint, batch: Batch, speaker: Tensor) -> tuple[Tensor, Tensor]:
    """Return the surprise at each code of codebook 0, and at each other code, of one clip."""
    network = checkpoint.network
    ids = PromptIds(
        batch.text_ids, batch.codec_ids, batch.codes[..., 1:], batch.is_frame, speaker[None]
    )
    places = torch.arange(batch.text_ids.shape[1])[None]
    states = network.talker.run(network.embed_prompt(ids), places, _WholeSequence())  # type: ignore[arg-type]
    frames = torch.nonzero(batch.is_frame[0])[:, 0]
    ends = torch.cat((frames, frames[-1:] + 1))
    logits = network.talker.head(states[0, ends - 1])
    of_talker = F.cross_entropy(logits, batch.targets[0, ends], reduction="none")
    codes = batch.codes[0, frames]
    of_predictor = list[Tensor]()

    def force(logits: Tensor, book: int) -> Tensor:
        of_predictor.append(F.cross_entropy(logits, codes[:, book], reduction="none"))
        return codes[:, book]

    predictor = network.code_predictor
    predictor.complete_frame(
        states[0, frames - 1], codes[:, 0], predictor.new_buffers(len(frames)), force
    )
    return of_talker, torch.cat(of_predictor)
