"""Sounds of a user that are no utterance, and speech of a user, for microphones at 16 kHz.

The sounds are synthesized: a cough is two bursts of noise in the range of a voice, a door is a
thump with a click, and "mhm" is hummed by the embedded voice. This module knows no agent.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from testbed.listening import pcm_of
from voiceagent_tts.protocol.messages import SampleRate

RATE_HZ: Final = 16_000


async def speech(url: str, text: str, *, rate_hz: SampleRate = RATE_HZ) -> bytes:
    """`text` as spoken by a user, PCM16."""
    return await pcm_of(url, text, "nova", rate_hz)


async def hum(url: str) -> bytes:
    """A listener's "mhm", a third of a second long."""
    pcm = await speech(url, "Mhm.")
    samples = np.frombuffer(pcm, "<i2")
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > 500)
    return samples[loud[0] :][: round(0.33 * RATE_HZ)].tobytes()


def cough() -> bytes:
    """Two short bursts of breath noise, 0.35 s long."""
    rng = np.random.default_rng(0)
    bursts = [_burst(rng, 0.12), np.zeros(round(0.08 * RATE_HZ)), _burst(rng, 0.15)]
    return _pcm(0.5 * np.concatenate(bursts))


def door() -> bytes:
    """A thump of 70 Hz that decays within 0.2 s, and the click of a lock."""
    rng = np.random.default_rng(0)
    time_s = np.arange(round(0.4 * RATE_HZ)) / RATE_HZ
    thump = np.sin(2 * np.pi * 70 * time_s) * np.exp(-time_s / 0.06)
    click = np.zeros_like(time_s)
    start = round(0.25 * RATE_HZ)
    click[start : start + 160] = rng.standard_normal(160) * np.exp(-np.arange(160) / 40)
    return _pcm(0.8 * thump + 0.2 * click)


def _burst(rng: np.random.Generator, seconds: float) -> npt.NDArray[np.float64]:
    """Noise between 300 and 3,000 Hz with the envelope of a cough."""
    count = round(seconds * RATE_HZ)
    spectrum = np.fft.rfft(rng.standard_normal(count))
    frequency = np.fft.rfftfreq(count, 1 / RATE_HZ)
    spectrum[(frequency < 300) | (frequency > 3_000)] = 0
    noise = np.fft.irfft(spectrum, count)
    return noise / np.abs(noise).max() * np.exp(-3 * np.arange(count) / count)


def _pcm(samples: npt.NDArray[np.float64]) -> bytes:
    return np.clip(np.rint(32_767 * samples), -32_768, 32_767).astype("<i2").tobytes()
