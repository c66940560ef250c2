"""Speech with known defects: clips of synthetic voices, and errors planted in them."""

from functools import cache

import numpy as np

from testbed import known_speech
from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.core import ms_to_samples
from voiceagent_tts.plugins.bench.quality.clips import Clip, Item, Samples

FLITE_VOICES = ("slt", "rms", "awb")


@cache
def spoken(text: str, voice: str = "slt", language: str = "en") -> Clip:
    """A text by a voice of flite, or of espeak for any other name."""
    made = (
        known_speech.flite(text, voice)
        if voice in FLITE_VOICES
        else known_speech.espeak(text, language, voice)
    )
    assert made is not None, "flite must split the text into its words"
    return Clip(Item(text, text, language), pcm_to_float(made.pcm))


def changed(clip: Clip, samples: Samples, *joints: int) -> Clip:
    """A clip with other sound for the same text."""
    return Clip(clip.item, samples.astype(np.float32), joints)


def with_noise_burst(clip: Clip, at_s: float, length_ms: int = 200, seed: int = 0) -> Clip:
    """White noise as loud as the speech's loudest 20 ms, from a moment on."""
    samples = clip.samples.copy()
    start, length = ms_to_samples(1000 * at_s), ms_to_samples(length_ms)
    length = min(length, len(samples) - start)
    level = np.sqrt(np.square(samples).reshape(-1)[: len(samples) // 480 * 480]
                    .reshape(-1, 480).mean(axis=1).max())  # fmt: skip
    samples[start : start + length] += level * np.random.default_rng(seed).standard_normal(length)
    return changed(clip, samples)


def with_pause(clip: Clip, at_s: float, length_s: float) -> Clip:
    """Silence inside the speech."""
    start = ms_to_samples(1000 * at_s)
    silence = np.zeros(ms_to_samples(1000 * length_s), np.float32)
    return changed(clip, np.concatenate((clip.samples[:start], silence, clip.samples[start:])))


def with_repeat(clip: Clip, start_s: float, length_s: float) -> Clip:
    """A stretch of the speech twice."""
    start, end = ms_to_samples(1000 * start_s), ms_to_samples(1000 * (start_s + length_s))
    samples = clip.samples
    return changed(clip, np.concatenate((samples[:end], samples[start:end], samples[end:])))


def loud_places(clip: Clip, count: int, seed: int = 0) -> list[int]:
    """Samples with loud sound around them."""
    rng = np.random.default_rng(seed)
    places = rng.integers(2_400, len(clip.samples) - 2_400, 400)
    loud = [int(each) for each in places if np.abs(clip.samples[each - 120 :][:240]).max() > 0.15]
    return loud[:count]
