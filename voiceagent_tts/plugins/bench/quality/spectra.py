"""Short-time measures of speech at 24 kHz: levels, spectral flatness, bands of the mel scale.

Every frame is 25 ms, every 10 ms. This module knows no texts and no verdicts.

Source: Stevens, Volkmann and Newman 1937 for the scale, in O'Shaughnessy's form; Gray and Markel
1974 for spectral flatness.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from voiceagent_tts.core import SAMPLE_RATE_HZ, ms_to_samples
from voiceagent_tts.plugins.bench.quality.clips import Samples

FRAME_SAMPLES = ms_to_samples(25)
HOP_SAMPLES = ms_to_samples(10)
HOP_S = HOP_SAMPLES / SAMPLE_RATE_HZ
FLAT_BAND_HZ = (300.0, 7_000.0)
"""Telephone speech has no more; within it, fricatives are not flat and noise is."""
_FFT_SAMPLES = 1024
_BANDS = 24
_BANDS_HZ = (100.0, 8_000.0)
_FLOOR = 1e-10

Values = npt.NDArray[np.float64]


def frames(samples: Samples) -> Values:
    """Overlapping frames: [S] -> [F, 600]; the last one is padded with silence."""
    count = max(1, -(-(len(samples) - FRAME_SAMPLES) // HOP_SAMPLES) + 1)
    length = (count - 1) * HOP_SAMPLES + FRAME_SAMPLES
    padded = np.pad(samples.astype(np.float64), (0, max(0, length - len(samples))))
    return np.lib.stride_tricks.sliding_window_view(padded, FRAME_SAMPLES)[::HOP_SAMPLES][:count]


def levels_db(samples: Samples) -> Values:
    """Root mean square of each frame in dB of full scale: [S] -> [F]; at least -100."""
    return 10 * np.log10(np.square(frames(samples)).mean(axis=1) + _FLOOR)


def powers(samples: Samples) -> Values:
    """Power spectrum of each frame: [S] -> [F, 513]."""
    windowed = frames(samples) * np.hanning(FRAME_SAMPLES)
    return np.square(np.abs(np.fft.rfft(windowed, _FFT_SAMPLES, axis=1)))


def flatness(power: Values) -> Values:
    """Geometric over arithmetic mean of the power from 300 to 7,000 Hz: [F, 513] -> [F].

    The spectrum is averaged over bands first, so that white noise is near 1 in a single frame.
    """
    low, high = (round(hz * _FFT_SAMPLES / SAMPLE_RATE_HZ) for hz in FLAT_BAND_HZ)
    width = 12
    count = (high - low) // width
    bands = power[:, low : low + count * width].reshape(len(power), count, width).mean(axis=2)
    return np.exp(np.log(bands + _FLOOR).mean(axis=1)) / (bands.mean(axis=1) + _FLOOR)


def log_mel(power: Values) -> Values:
    """Logarithm of the power in 24 bands of the mel scale: [F, 513] -> [F, 24]."""
    return np.log(power @ _filters().T + _FLOOR)


@cache
def _filters() -> Values:
    """Triangles, evenly spaced on the mel scale: [24, 513]."""
    low_mel, high_mel = (float(2595 * np.log10(1 + hz / 700)) for hz in _BANDS_HZ)
    edges_mel = np.linspace(low_mel, high_mel, _BANDS + 2)
    edges_hz = 700 * (10 ** (edges_mel / 2595) - 1)
    hz = np.fft.rfftfreq(_FFT_SAMPLES, 1 / SAMPLE_RATE_HZ)
    lows, middles, highs = edges_hz[:-2, None], edges_hz[1:-1, None], edges_hz[2:, None]
    rising, falling = (hz - lows) / (middles - lows), (highs - hz) / (highs - middles)
    return np.maximum(0, np.minimum(rising, falling))
