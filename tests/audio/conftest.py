import numpy as np
import pytest

from voiceagent_tts.core import SAMPLE_RATE_HZ


@pytest.fixture(scope="session")
def speech() -> np.ndarray:
    """1.3 s of a gliding tone with a little noise, loud to its end: [S] int16, 24 kHz."""
    rng = np.random.default_rng(7)
    time_s = np.arange(31_335) / SAMPLE_RATE_HZ
    pitch_hz = 120 + 40 * np.sin(2 * np.pi * 1.7 * time_s) + 30 * time_s
    phase = 2 * np.pi * np.cumsum(pitch_hz) / SAMPLE_RATE_HZ
    voice = sum(np.sin(k * phase) / k for k in range(1, 16))
    syllables = 0.6 + 0.4 * np.sin(2 * np.pi * 4.3 * time_s)
    samples = 6_000 * syllables * voice + 60 * rng.standard_normal(len(time_s))
    return np.clip(samples, -30_000, 30_000).astype(np.int16)
