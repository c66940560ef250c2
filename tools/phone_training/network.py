"""Train the phone network on disturbed speech, and write its weights as the aligner loads them.

The usual spectrum that is subtracted is, as in `VoiceProfile`, a mean weighted by amplitude, here
of a random part of each utterance; and it is blurred further, since a voice that is new or moves is
known badly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tools.phone_training.disturbances import loudest_rms
from tools.phone_training.labelled_speech import LabelledSpeech
from voiceagent_tts.aligner.online.features import (
    BANDS,
    FRAMES_AFTER,
    FRAMES_BEFORE,
    FRAMES_SEEN,
    Floats,
    amplitudes_of,
    frames_of,
)
from voiceagent_tts.aligner.online.phones import PHONES, SILENCE

_HIDDEN = (256, 128)
_BATCH, _LEARNING_RATE = 1_024, 2e-3
_LABEL_SMOOTHING = 0.05
_SILENCE_WEIGHT = 0.5
"""Weight of silence in the loss: it is the most frequent label."""
_PRIOR_FLOOR = 1e-4
_KNOWN_FRAMES = (60, 400)
"""How much of an utterance its usual spectrum is computed from, in half of the cases."""
_TYPICAL_PEAK = 10 ** (-12 / 20)
"""Loudest 20 ms of a usual recording, relative to full scale."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """What is learnt of one utterance.

    Attributes:
        spectra: [N, BANDS] float16.
        labels: [N] int8.
    """

    spectra: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, speech: LabelledSpeech) -> "Utterance":
        """The spectra of `speech`, computed as in the product."""
        spectra = frames_of(speech.samples.astype("<i2").tobytes()).own_spectra
        length = min(len(spectra), len(speech.labels))
        return cls(spectra[:length].astype(np.float16), speech.labels[:length].astype(np.int8))


class Corpus:
    """All utterances, joined, with neighbours of the first and last frames of each.

    Args:
        utterances: at least one.
        rng: decides what is known of each voice.
    """

    def __init__(self, utterances: Sequence[Utterance], rng: np.random.Generator) -> None:
        self._rng = rng
        self._sums = [_weighted_sums(utterance.spectra) for utterance in utterances]
        padding = ((FRAMES_BEFORE, FRAMES_AFTER), (0, 0))
        padded = [np.pad(utterance.spectra, padding, "edge") for utterance in utterances]
        lengths = np.array([len(utterance.labels) for utterance in utterances])
        starts = np.cumsum(lengths + FRAMES_SEEN - 1) - lengths - FRAMES_SEEN + 1
        places = [start + np.arange(length) for start, length in zip(starts, lengths, strict=True)]
        self._spectra = torch.from_numpy(np.concatenate(padded))
        self._firsts = torch.from_numpy(np.concatenate(places))
        """[N], place of the first neighbour of each frame."""
        self._utterances = torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths))
        labels = np.concatenate([utterance.labels for utterance in utterances])
        self.labels = torch.from_numpy(labels.astype(np.int64))
        """[N], index in `PHONES` of each frame."""

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Every frame once in random order: [B, FRAMES_SEEN * BANDS] and labels [B]."""
        usual = torch.from_numpy(np.stack([self._usual_spectrum(*sums) for sums in self._sums]))
        neighbours = torch.arange(FRAMES_SEEN)
        for chosen in torch.randperm(len(self)).split(_BATCH):
            spectra = self._spectra[self._firsts[chosen][:, None] + neighbours].float()
            spectra -= usual[self._utterances[chosen]][:, None]
            yield _blurred(spectra).flatten(1), self.labels[chosen]

    def _usual_spectrum(self, weights: np.ndarray, totals: np.ndarray) -> Floats:
        """Of the whole utterance or of a part of it, unless that is quiet."""
        frames = len(weights) - 1
        start, end = 0, frames
        if self._rng.random() < 0.5:
            length = min(frames, int(self._rng.integers(*_KNOWN_FRAMES)))
            first = int(self._rng.integers(0, frames - length + 1))
            share = (weights[first + length] - weights[first]) / weights[-1]
            if share > 0.25 * length / frames:
                start, end = first, first + length
        return (totals[end] - totals[start]) / (weights[end] - weights[start])


def train(corpus: Corpus, epochs: int) -> nn.Sequential:
    """Train the network. Its outputs are the logits of `PHONES`, [B, PHONES]."""
    sizes = (FRAMES_SEEN * BANDS, *_HIDDEN, len(PHONES))
    layers: list[nn.Module] = []
    for inputs, outputs in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    network = nn.Sequential(*layers[:-1])
    steps = epochs * -(-len(corpus) // _BATCH)
    optimizer = torch.optim.AdamW(network.parameters(), _LEARNING_RATE, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=steps)
    weights = torch.ones(len(PHONES))
    weights[PHONES.index(SILENCE)] = _SILENCE_WEIGHT
    loss_of = nn.CrossEntropyLoss(weights, label_smoothing=_LABEL_SMOOTHING)
    for epoch in range(epochs):
        right = 0
        for spectra, labels in corpus.batches():
            logits = network(spectra)
            optimizer.zero_grad()
            loss_of(logits, labels).backward()
            optimizer.step()
            schedule.step()
            right += int((logits.argmax(dim=1) == labels).sum())
        print(f"epoch {epoch + 1} of {epochs}: {100 * right / len(corpus):.1f} % of frames right")
    return network


def typical_spectrum(clean: Sequence[LabelledSpeech]) -> Floats:
    """[BANDS], the usual spectrum of all voices together, at a usual level."""
    weights, totals = 0.0, np.zeros(BANDS)
    for speech in clean:
        samples = speech.samples * (_TYPICAL_PEAK * (1 << 15) / loudest_rms(speech.samples))
        spectra = Utterance.of(LabelledSpeech(samples, speech.labels)).spectra
        weight, total = (sums[-1] for sums in _weighted_sums(spectra))
        weights, totals = weights + weight, totals + total
    return (totals / weights).astype(np.float32)


def save(network: nn.Sequential, corpus: Corpus, typical: Floats, path: Path) -> None:
    """Write what `phone_model` loads."""
    counts = np.bincount(corpus.labels.numpy(), minlength=len(PHONES))
    log_priors = np.log(counts / counts.sum() + _PRIOR_FLOOR)
    arrays = {"log_priors": log_priors - log_priors.mean(), "typical_spectrum": typical}
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    for number, layer in enumerate(layers):
        arrays[f"weights_{number}"] = layer.weight.detach().numpy().T.astype(np.float16)
        arrays[f"biases_{number}"] = layer.bias.detach().numpy()
    np.savez_compressed(path, **arrays)


def _weighted_sums(spectra: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Running sums of the frames' amplitudes, [N + 1], and of the spectra weighted by them."""
    spectra = spectra.astype(np.float64)
    amplitudes = amplitudes_of(spectra)
    weights = np.append(0.0, np.cumsum(amplitudes))
    totals = np.cumsum(amplitudes[:, None] * spectra, axis=0)
    return weights, np.concatenate((np.zeros((1, BANDS)), totals)).astype(np.float32)


def _blurred(spectra: Tensor) -> Tensor:
    """Spectra of voices that are louder, quieter, darker or brighter than is known of them."""
    rows = (len(spectra), 1, 1)
    level = torch.randn(rows) * torch.where(torch.rand(rows) < 0.5, 0.2, 0.8)
    tilt = 0.3 * torch.randn(rows) * torch.linspace(-1, 1, BANDS)
    return spectra + level + tilt + 0.2 * torch.randn(len(spectra), 1, BANDS)
