"""Disturb labelled speech at random: vocal tracts, pauses, rooms, microphones, noise, breaths.

What is drawn here is wider than the conditions of `benchmarks.alignment`, and shares no code with
them: a network that has learnt those exactly would be measured on what it has learnt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import soxr

from tools.phone_training.labelled_speech import LabelledSpeech, Samples, frame_centres
from voiceagent_tts.aligner.online.features import HOP_SAMPLES
from voiceagent_tts.aligner.online.phones import PHONES, SILENCE
from voiceagent_tts.core import SAMPLE_RATE_HZ, ms_to_samples

_SILENCE = PHONES.index(SILENCE)
_LEVEL_SAMPLES = ms_to_samples(20)
_EQUALIZER_HZ = (0, 150, 400, 1_000, 2_500, 5_000, 8_000, 12_000)
_LOWEST_NOISE_HZ = 60.0
_BREATH_FRAMES = 35
"""Longest breath, in frames."""


@dataclass(frozen=True, slots=True)
class Disturber:
    """Disturbs speech.

    Attributes:
        rng: the source of all random choices.
        voices: samples of other speech, for babble.
    """

    rng: np.random.Generator
    voices: Sequence[Samples]

    def disturb(self, clean: LabelledSpeech) -> LabelledSpeech:
        """One random version of `clean`, rounded to PCM16."""
        speech = self._resampled(clean) if self._is(0.8) else clean
        speech = self._paused(speech) if self._is(0.4) else speech
        loudest = loudest_rms(speech.samples)
        samples = self._echoed(speech.samples) if self._is(0.3) else speech.samples
        samples = self._filtered(samples) if self._is(0.7) else samples
        if self._is(0.85):
            below_db = self.rng.uniform(8, 55)
            samples = samples + _gain(-below_db) * loudest * self._noise(len(samples))
        if self._is(0.3):
            samples = self._breathing(samples, speech.labels, loudest)
        samples = samples * _gain(self.rng.uniform(-20, 3))
        return replace(speech, samples=np.clip(np.rint(samples), -32_768, 32_767))

    def _is(self, probability: float) -> bool:
        return self.rng.random() < probability

    def _resampled(self, speech: LabelledSpeech) -> LabelledSpeech:
        """Another vocal tract, pitch and pace: all frequencies by the same factor."""
        factor = float(np.exp(self.rng.uniform(-0.18, 0.18)))
        samples = soxr.resample(speech.samples, factor, 1.0, quality="MQ")
        centres = frame_centres(len(samples) // HOP_SAMPLES) * factor
        places = np.rint((centres - frame_centres(1)[0]) / HOP_SAMPLES).astype(np.int64)
        return LabelledSpeech(samples, speech.labels[np.clip(places, 0, len(speech.labels) - 1)])

    def _paused(self, speech: LabelledSpeech) -> LabelledSpeech:
        """Silence of 100 to 800 ms at up to three places, but not before the first frame."""
        count = int(self.rng.integers(1, 4))
        places = 1 + np.sort(self.rng.choice(len(speech.labels) - 1, count, replace=False))
        lengths = self.rng.integers(10, 80, count)
        samples = np.split(speech.samples, frame_centres(len(speech.labels))[places])
        labels = np.split(speech.labels, places)
        for part, length in enumerate(lengths, start=1):
            samples[part] = np.append(np.zeros(length * HOP_SAMPLES, np.float32), samples[part])
            labels[part] = np.append(np.full(length, _SILENCE), labels[part])
        return LabelledSpeech(np.concatenate(samples), np.concatenate(labels))

    def _echoed(self, samples: Samples) -> Samples:
        length = round(self.rng.uniform(0.1, 0.6) * SAMPLE_RATE_HZ)
        echo = self.rng.standard_normal(length) * 10 ** (-3 * np.arange(length) / length)
        echo *= self.rng.uniform(0.1, 0.6) / np.sqrt(np.square(echo).sum())
        echo[0] = 1.0
        size = _fast_length(len(samples) + length)
        return _spectrum_times(samples, np.fft.rfft(echo, size), size)

    def _filtered(self, samples: Samples) -> Samples:
        """A microphone; in some cases a telephone, which ends near 3.7 kHz and begins near 200."""
        size = _fast_length(len(samples))
        hz = np.fft.rfftfreq(size, 1 / SAMPLE_RATE_HZ)
        gain = _gain(np.interp(hz, _EQUALIZER_HZ, self.rng.normal(0, 4, len(_EQUALIZER_HZ))))
        if self._is(0.25):
            gain = gain / (1 + (hz / self.rng.uniform(3_200, 4_200)) ** 16)
        if self._is(0.15):
            gain = gain / (1 + (self.rng.uniform(100, 350) / np.maximum(hz, 1)) ** 8)
        return _spectrum_times(samples, gain, size)

    def _noise(self, samples: int) -> Samples:
        """Noise with a mean square of 1: steady, swelling, or the babble of other voices."""
        kind = self.rng.random()
        if kind < 0.35:
            voices = self.rng.integers(len(self.voices), size=self.rng.integers(3, 9))
            return _unit(np.sum([self._from_anywhere(voice, samples) for voice in voices], axis=0))
        steady = self._coloured(samples)
        if kind < 0.5:
            time_s = np.arange(samples) / SAMPLE_RATE_HZ
            phase = 2 * np.pi * self.rng.uniform(0.3, 4) * time_s + self.rng.uniform(0, 6)
            return steady * (1 + 0.8 * np.sin(phase))
        return steady

    def _coloured(self, samples: int) -> Samples:
        size = _fast_length(samples)
        hz = np.maximum(np.fft.rfftfreq(size, 1 / SAMPLE_RATE_HZ), _LOWEST_NOISE_HZ)
        slope = self.rng.uniform(-0.9, 0.1)
        return _unit(_spectrum_times(self.rng.standard_normal(samples), hz**slope, size))

    def _from_anywhere(self, voice: int, samples: int) -> Samples:
        start = self.rng.integers(len(self.voices[voice]))
        return _unit(np.resize(np.roll(self.voices[voice], start), samples))

    def _breathing(self, samples: Samples, labels: np.ndarray, loudest: float) -> Samples:
        """Breathe in during most pauses of more than 120 ms."""
        samples = samples.copy()
        borders = np.flatnonzero(np.diff(labels == _SILENCE, prepend=False, append=False))
        for first, end in borders.reshape(-1, 2).tolist():
            if end - first <= 12 or not self._is(0.6):
                continue
            start = max(first + 2, end - 2 - _BREATH_FRAMES) * HOP_SAMPLES
            breath = self._breath(min((end - 2) * HOP_SAMPLES, len(samples)) - start)
            level = _gain(-self.rng.uniform(18, 38)) * loudest
            samples[start : start + len(breath)] += level * breath
        return samples

    def _breath(self, samples: int) -> Samples:
        size = _fast_length(samples)
        hz = np.fft.rfftfreq(size, 1 / SAMPLE_RATE_HZ)
        low, high = self.rng.uniform(1_000, 2_400), self.rng.uniform(3_500, 5_500)
        gain = np.exp(-(((hz - low) / 900) ** 2))
        gain += self.rng.random() * np.exp(-(((hz - high) / 1_800) ** 2))
        breath = _spectrum_times(self.rng.standard_normal(samples), gain, size)
        return _unit(breath * np.sin(np.pi * np.linspace(0, 1, samples)))


def loudest_rms(samples: Samples) -> float:
    """Root mean square of the loudest 20 ms."""
    whole = samples[: len(samples) // _LEVEL_SAMPLES * _LEVEL_SAMPLES].reshape(-1, _LEVEL_SAMPLES)
    return float(np.sqrt(np.square(whole).mean(axis=1).max()))


def _fast_length(samples: int) -> int:
    """The next power of two from `samples` on: transforms of other lengths can be slow."""
    return 1 << (samples - 1).bit_length()


def _spectrum_times(samples: Samples, gain: npt.NDArray[Any], size: int) -> Samples:
    """`samples` with their spectrum [size // 2 + 1] multiplied by `gain`."""
    return np.fft.irfft(np.fft.rfft(samples, size) * gain, size)[: len(samples)]


def _gain(db: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Factor on amplitudes."""
    return np.power(10.0, np.asarray(db) / 20)


def _unit(samples: Samples) -> Samples:
    return samples / (np.sqrt(np.square(samples).mean()) + 1e-9)
