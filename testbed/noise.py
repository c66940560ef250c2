"""Sounds of rooms and of people that are not words: pink noise, babble, breaths and lip clicks.

All of them are float samples at 24 kHz with a mean square of 1, for `known_speech` to scale. This
module uses no aligner.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from testbed.known_speech import espeak
from testbed.sentences import ENGLISH
from voiceagent_tts.core import SAMPLE_RATE_HZ, ms_to_samples

Samples = npt.NDArray[np.float64]

_LOWEST_HZ = 60.0
"""Pink noise has most of its power below; microphones and codecs do not."""
_BABBLE_VOICES = ("f1", "m1", "f3", "m3", "f5", "m4")
_CLICK_SAMPLES = ms_to_samples(8)


def pink(samples: int, rng: np.random.Generator) -> Samples:
    """Noise with equal power in every octave, like that of a quiet room."""
    return _shaped(samples, rng, lambda hz: hz**-0.5)


def babble(samples: int, rng: np.random.Generator) -> Samples:
    """Six voices that speak other sentences at once, from a random place on."""
    voices = _babble()
    return _unit(np.take(voices, np.arange(samples) + rng.integers(len(voices)), mode="wrap"))


def breath(samples: int, rng: np.random.Generator) -> Samples:
    """An inhalation through the mouth: noise with two broad resonances, swelling and ending."""

    def resonances(hz: Samples) -> Samples:
        return np.exp(-(((hz - 1_700) / 900) ** 2)) + 0.5 * np.exp(-(((hz - 4_500) / 1_800) ** 2))

    return _unit(_shaped(samples, rng, resonances) * np.sin(np.pi * np.linspace(0, 1, samples)))


def click(rng: np.random.Generator) -> Samples:
    """Lips or tongue that open: a burst of 8 ms."""
    burst = rng.standard_normal(_CLICK_SAMPLES)
    return _unit(burst * np.exp(-np.arange(_CLICK_SAMPLES) / ms_to_samples(1.5)))


def _shaped(samples: int, rng: np.random.Generator, gain: Callable[[Samples], Samples]) -> Samples:
    hz = np.fft.rfftfreq(samples, 1 / SAMPLE_RATE_HZ)
    spectrum = np.fft.rfft(rng.standard_normal(samples)) * gain(np.maximum(hz, _LOWEST_HZ))
    return _unit(np.fft.irfft(spectrum, samples))


def _unit(samples: Samples) -> Samples:
    return samples / np.sqrt(np.square(samples).mean())


@cache
def _babble() -> Samples:
    """Each voice speaks sentences in its own order; levels are equal."""
    voices = [_voice(name, place) for place, name in enumerate(_BABBLE_VOICES)]
    shortest = min(map(len, voices))
    return _unit(np.sum([voice[:shortest] for voice in voices], axis=0))


def _voice(name: str, place: int) -> Samples:
    texts = ENGLISH[5 * place :] + ENGLISH[: 5 * place]
    pcm = b"".join(espeak(text, "en", name).pcm for text in texts[:12])
    return _unit(np.frombuffer(pcm, "<i2").astype(np.float64))
