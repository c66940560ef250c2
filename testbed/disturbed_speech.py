"""Disturb speech with known word times as rooms, microphones and people do.

Levels of noise are stated in dB below the voice's loudest 20 ms, measured before anything is added:
a voice's mean level lies about 10 dB below that. The times stay true: what is inserted moves later
words. This module uses no aligner.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from testbed.known_speech import KnownSpeech, pcm16, with_pauses
from testbed.noise import Samples, breath, click
from voiceagent_tts.core import ms_to_samples

_LEVEL_SAMPLES = ms_to_samples(20)
_BREATH_MS = 320
_BREATH_PAUSE_MS = 450
_CLICK_PAUSE_MS = 250
_AFTER_MS = 60
"""Silence between a breath or click and the word after it."""

Noise = Callable[[int, np.random.Generator], Samples]
"""Makes a number of samples of noise with a mean square of 1."""


def loudest_rms(spoken: KnownSpeech) -> float:
    """Root mean square of the loudest 20 ms, in units of PCM16."""
    samples = _samples(spoken)
    whole = samples[: len(samples) // _LEVEL_SAMPLES * _LEVEL_SAMPLES].reshape(-1, _LEVEL_SAMPLES)
    return float(np.sqrt(np.square(whole).mean(axis=1).max()))


def with_noise(spoken: KnownSpeech, seed: int, noise: Noise, below_db: float) -> KnownSpeech:
    """Add noise from the first to the last sample, in pauses too."""
    level = loudest_rms(spoken) * 10 ** (-below_db / 20)
    added = level * noise(spoken.samples, np.random.default_rng(seed))
    return replace(spoken, pcm=pcm16(_samples(spoken) + added))


def with_breaths(
    spoken: KnownSpeech, words: Sequence[int], below_db: float, seed: int
) -> KnownSpeech:
    """Pause and breathe in before the words with these indices; 0 is the first."""
    rng = np.random.default_rng(seed)
    samples = ms_to_samples(_BREATH_MS)
    return _with_sounds(spoken, words, _BREATH_PAUSE_MS, below_db, lambda: breath(samples, rng))


def with_clicks(
    spoken: KnownSpeech, words: Sequence[int], below_db: float, seed: int
) -> KnownSpeech:
    """Pause and open the lips audibly before the words with these indices; 0 is the first."""
    rng = np.random.default_rng(seed)
    return _with_sounds(spoken, words, _CLICK_PAUSE_MS, below_db, lambda: click(rng))


def with_gain(spoken: KnownSpeech, gain_db: float) -> KnownSpeech:
    return replace(spoken, pcm=pcm16(_samples(spoken) * 10 ** (gain_db / 20)))


def _with_sounds(
    spoken: KnownSpeech,
    words: Sequence[int],
    pause_ms: int,
    below_db: float,
    sound: Callable[[], Samples],
) -> KnownSpeech:
    level = loudest_rms(spoken) * 10 ** (-below_db / 20)
    paused = with_pauses(spoken, [(word, pause_ms) for word in words])
    samples = _samples(paused)
    for word in words:
        end = paused.words[word].start_sample - ms_to_samples(_AFTER_MS)
        made = sound()
        samples[end - len(made) : end] += level * made
    return replace(paused, pcm=pcm16(samples))


def _samples(spoken: KnownSpeech) -> Samples:
    return np.frombuffer(spoken.pcm, "<i2").astype(np.float64)
