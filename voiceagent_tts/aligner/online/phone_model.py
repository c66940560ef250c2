"""A small network that says which phone sounds in a frame of speech.

Three layers see the spectra of a frame and its neighbours, relative to the voice's usual spectrum.
They were trained on synthetic voices with noise, echoes, breaths and telephone bands added
(`tools/phone_training`, decision 34); the weights are in `phones.npz` beside this file.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO

import numpy as np

from voiceagent_tts.aligner.online.features import FRAMES_SEEN, Floats
from voiceagent_tts.aligner.online.phones import PHONES, SOUNDS

_WEIGHTS = "phones.npz"
_PRIOR_POWER = 0.5
"""How much of a phone's frequency in the training speech is taken out of its probability: with all
of it rare phones would be found too often, with none of it too rarely."""
_MAX_COST = np.float32(6.0)
"""Maximum cost of a phone in one frame: a voice may pronounce a word differently from espeak."""
_LONGEST = max(map(len, SOUNDS))
_OF_SEVERAL = np.array(
    [list(map(PHONES.index, sound.ljust(_LONGEST, sound[0]))) for sound in SOUNDS[len(PHONES) :]]
)
"""[SOUNDS - PHONES, _LONGEST], phones of each sound of several; shorter ones repeat their first."""


@dataclass(frozen=True, slots=True)
class PhoneModel:
    """The trained network.

    Attributes:
        weights: of each layer, [inputs, outputs] float32; the first has FRAMES_SEEN * BANDS inputs.
        biases: of each layer, [outputs] float32.
        log_priors: [PHONES] float32, logarithm of each phone's frequency in the training speech,
            minus their mean.
        typical_spectrum: [BANDS] float32, the usual spectrum of a voice at a usual level.
    """

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    log_priors: Floats
    typical_spectrum: Floats

    def costs(self, spectra: Floats, usual_spectrum: Floats) -> Floats:
        """How badly each sound explains each frame, [N, SOUNDS] from 0.0 to `_MAX_COST`.

        A sound of several phones costs what that one of them costs which fits best. spectra: [N,
        FRAMES_SEEN, BANDS], as in `Frames`; usual_spectrum: [BANDS], of the voice.
        """
        hidden = (spectra - usual_spectrum).reshape(len(spectra), -1)
        last = len(self.weights) - 1
        for layer, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = hidden @ weights + biases
            if layer < last:
                hidden = np.maximum(hidden, 0.0)
        hidden -= hidden.max(axis=1, keepdims=True)
        log_probabilities = hidden - np.log(np.exp(hidden).sum(axis=1, keepdims=True))
        costs = np.float32(_PRIOR_POWER) * self.log_priors - log_probabilities
        costs = np.clip(costs, np.float32(0.0), _MAX_COST)
        return np.concatenate((costs, costs[:, _OF_SEVERAL].min(axis=2)), axis=1)


@cache
def phone_model() -> PhoneModel:
    """The network of this package; loaded once a process."""
    data = files("voiceagent_tts.aligner.online").joinpath(_WEIGHTS).read_bytes()
    with np.load(BytesIO(data), allow_pickle=False) as saved:
        arrays = {name: saved[name].astype(np.float32) for name in saved.files}
    layers = range(sum(name.startswith("weights_") for name in arrays))
    model = PhoneModel(
        tuple(arrays[f"weights_{layer}"] for layer in layers),
        tuple(arrays[f"biases_{layer}"] for layer in layers),
        arrays["log_priors"],
        arrays["typical_spectrum"],
    )
    inputs, outputs = len(model.weights[0]), len(model.biases[-1])
    assert inputs == FRAMES_SEEN * len(model.typical_spectrum), f"{inputs} inputs"
    assert outputs == len(PHONES), f"{outputs} phones"
    return model
