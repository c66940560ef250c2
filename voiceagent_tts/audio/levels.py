"""Levels of PCM16 at 24 kHz: frame peaks, the first audible sample, onsets after pauses.

Engines detect silent frames with it; benchmarks and demos compare reported times with the audio.
"""

import numpy as np
import numpy.typing as npt

from voiceagent_tts.core import FRAME_SAMPLES, ms_to_samples

AUDIBLE_LEVEL = 328
"""Magnitude from which a sample is audible: 1 % of full scale, -40 dBFS."""

_HOP_SAMPLES = ms_to_samples(5)


def frame_peaks(pcm: bytes) -> list[int]:
    """The largest magnitude in each codec frame of `pcm`, which must be whole frames."""
    frames = np.frombuffer(pcm, "<i2").reshape(-1, FRAME_SAMPLES)
    return np.maximum(frames.max(axis=1), -frames.min(axis=1).astype(np.int32)).tolist()


def leading_silence_samples(pcm: bytes, level: int = AUDIBLE_LEVEL) -> int:
    """Count the samples before the first whose magnitude is at least `level`; all if none is."""
    samples = np.frombuffer(pcm, "<i2").astype(np.int32)
    audible = np.flatnonzero(np.abs(samples) >= level)
    return int(audible[0]) if len(audible) else len(samples)


def onsets(pcm: bytes, *, min_pause_ms: int = 100, below_peak_db: float = 35.0) -> list[int]:
    """Find where sound begins after a pause, in samples, with a resolution of 5 ms.

    A 5 ms hop is sound if its energy is at most `below_peak_db` below the loudest hop's. The first
    sound is an onset too.

    Args:
        pcm: PCM16 mono at 24 kHz.
        min_pause_ms: minimum length of a pause; shorter silences, such as the closure of a plosive,
            are inside a word.
        below_peak_db: range of sound below the loudest hop, in dB.
    """
    loud = np.flatnonzero(_is_loud(_hop_energies(pcm), below_peak_db))
    if not len(loud):
        return []
    pause_samples = (np.diff(loud) - 1) * _HOP_SAMPLES
    after_pause = loud[1:][pause_samples >= ms_to_samples(min_pause_ms)]
    return [int(hop) * _HOP_SAMPLES for hop in (loud[0], *after_pause)]


def _hop_energies(pcm: bytes) -> npt.NDArray[np.float64]:
    samples = np.frombuffer(pcm, "<i2").astype(np.float64)
    padded = np.pad(samples, (0, -len(samples) % _HOP_SAMPLES))
    return np.square(padded).reshape(-1, _HOP_SAMPLES).mean(axis=1)


def _is_loud(energies: npt.NDArray[np.float64], below_peak_db: float) -> npt.NDArray[np.bool_]:
    floor = max(energies.max(initial=0.0) * 10 ** (-below_peak_db / 10), 1.0)
    return energies >= floor
