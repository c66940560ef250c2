"""The loss of a batch: how well the talker and the code predictor predict each code of each clip.

`ALIGNED` predicts every code from what the model knows when it speaks. `OFFICIAL` is the loss that
`finetuning/sft_12hz.py` of the official repository computes at commit 022e286, position by
position. They differ in four places, which are the fields of `Recipe`;
docs/decisions/0021 says why `ALIGNED` is the default.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from voiceagent_tts.model.prompt import SPEAKER
from voiceagent_tts.plugins.training.batches import IGNORED, Batch
from voiceagent_tts.plugins.training.network import TrainingNetwork

PREDICTOR_WEIGHT = 0.3
"""Weight of the code predictor's loss. Source: `sft_12hz.py`."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Where inputs and targets stand.

    Attributes:
        projects_text: whether text embeddings pass through the text projection, as in speech.
        talker_shift: positions from a talker's state to the code that it predicts. In speech it is
            1. The official script shifts the labels, and the loss function of transformers again.
        state_shift: positions from the talker's state that the code predictor reads to its frame.
            In speech it is 1, the state before the frame; the official script takes the state of
            the frame, which already holds all of its codes.
        predictor_shift: codebooks from a head of the code predictor to the one that it learns. In
            speech it is 0; the loss function of transformers shifts these labels, too.
    """

    projects_text: bool
    talker_shift: int
    state_shift: int
    predictor_shift: int


ALIGNED = Recipe(projects_text=True, talker_shift=1, state_shift=1, predictor_shift=0)
OFFICIAL = Recipe(projects_text=False, talker_shift=2, state_shift=0, predictor_shift=1)
RECIPES = {"aligned": ALIGNED, "official": OFFICIAL}


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """Losses of a batch, each a scalar.

    Attributes:
        talker: mean cross-entropy of codebook 0 and the end of speech.
        predictor: mean cross-entropy of the other codebooks.
    """

    talker: Tensor
    predictor: Tensor

    @property
    def total(self) -> Tensor:
        """Loss that is minimised."""
        return self.talker + PREDICTOR_WEIGHT * self.predictor

    def detach(self) -> "Losses":
        """Return the values without the graph that computed them."""
        return Losses(self.talker.detach(), self.predictor.detach())


def compute_losses(
    network: TrainingNetwork, batch: Batch, speaker_embedding: Tensor, recipe: Recipe = ALIGNED
) -> Losses:
    """Compute the losses of a batch.

    Args:
        network: the weights.
        batch: clips.
        speaker_embedding: [D], of the speaker of all clips.
        recipe: positions of inputs and targets.
    """
    inputs = embed(network, batch, speaker_embedding, recipe)
    states = network.talker.model.run(inputs[:, :-1])  # [B, T - 1, hidden]
    return Losses(
        _talker_loss(network, states, batch, recipe),
        _predictor_loss(network, states, batch, recipe),
    )


def embed(
    network: TrainingNetwork, batch: Batch, speaker_embedding: Tensor, recipe: Recipe
) -> Tensor:
    """Return the talker's input at each position: [B, T, hidden]."""
    talker = network.talker
    text = talker.model.text_embedding(batch.text_ids)
    if recipe.projects_text:
        text = talker.text_projection(text)
    has_codec = (batch.codec_ids >= 0)[..., None]
    codec = talker.model.codec_embedding(batch.codec_ids.clamp(min=0)) * has_codec
    speaker = speaker_embedding.to(codec)
    codec = torch.where((batch.codec_ids == SPEAKER)[..., None], speaker, codec)
    x = text * batch.is_used[..., None] + codec
    for book in range(1, batch.codes.shape[-1]):
        embedded = talker.code_predictor.embed(batch.codes[..., book], book)
        x = x + embedded * batch.is_frame[..., None]
    return x


def _talker_loss(network: TrainingNetwork, states: Tensor, batch: Batch, recipe: Recipe) -> Tensor:
    targets = batch.targets[:, recipe.talker_shift :]
    states = states[:, : targets.shape[1]]
    is_predicted = targets != IGNORED
    # Logits of ignored positions would only cost memory.
    logits = network.talker.codec_head(states[is_predicted])
    return F.cross_entropy(logits.float(), targets[is_predicted])


def _predictor_loss(
    network: TrainingNetwork, states: Tensor, batch: Batch, recipe: Recipe
) -> Tensor:
    codes = batch.codes[batch.is_frame]  # [N, K]
    is_read = batch.is_frame[:, recipe.state_shift :][:, : states.shape[1]]
    hidden = states[:, : is_read.shape[1]][is_read]
    talker = network.talker
    first = talker.model.codec_embedding(codes[:, 0])
    logits = talker.code_predictor(hidden, first.to(hidden.dtype), codes)
    targets = codes[:, 1 + recipe.predictor_shift :]
    logits = logits[:, : targets.shape[1]]
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
