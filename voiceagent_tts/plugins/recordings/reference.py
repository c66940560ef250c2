"""Examine a voice's reference recording: how much of it is speech, how noisy, and how clipped.

Silero's voice activity detector finds the speech. This module knows no files and no voices.
"""

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import soxr
import torch

from voiceagent_tts.core import SAMPLE_RATE_HZ

SHORTEST_S, LONGEST_S = 3.0, 30.0
"""Recommended length. Source: Qwen3-TTS clones from 3 s on; longer prompts slow every start."""

MIN_SPEECH_SHARE = 0.6
MIN_SNR_DB = 20.0
MAX_CLIPPED_SHARE = 0.001

_DETECTOR_RATE_HZ = 16_000
_MARGIN_S = 0.2
"""Silence kept around the speech: the detector may miss a soft first or last consonant."""
_CLIPPED_LEVEL = 0.98
"""Resampling makes a clipped peak ripple around full scale."""
_FRAME_SAMPLES = SAMPLE_RATE_HZ // 50
_MIN_PAUSE_FRAMES = 15
_QUIETEST = 0.1
_MAX_SNR_DB = 99.0

Span = tuple[int, int]
"""First sample, and the sample after the last."""


@dataclass(frozen=True, slots=True)
class Examination:
    """Measurements of a reference recording.

    Attributes:
        samples: [S] float32, mono, 24 kHz; without the silence before and after the speech.
        trimmed_s: silence that was removed from both ends.
        clipped_share: share of samples at full scale.
        speech_share: share of `samples` that is speech; None without a detector.
        snr_db: power of the speech relative to the noise; None without speech or a detector.
    """

    samples: npt.NDArray[np.float32]
    trimmed_s: float
    clipped_share: float
    speech_share: float | None = None
    snr_db: float | None = None

    @property
    def duration_s(self) -> float:
        """Length of `samples`."""
        return len(self.samples) / SAMPLE_RATE_HZ

    @property
    def speech_s(self) -> float:
        """Length of the speech; that of `samples` where none was found, or without a detector."""
        return self.duration_s * (self.speech_share or 1.0)

    def summary(self) -> str:
        """Return the measurements as one line."""
        parts = [f"{self.duration_s:.1f} s"]
        if self.speech_share is not None:
            parts.append(f"{self.speech_share:.0%} speech")
        if self.snr_db is not None:
            parts.append(f"{self.snr_db:.0f} dB above the noise")
        parts.append(f"{self.clipped_share:.1%} clipped")
        if self.trimmed_s >= 0.1:
            parts.append(f"{self.trimmed_s:.1f} s of silence trimmed")
        return ", ".join(parts)

    def problems(self) -> list[str]:
        """Return one sentence for each measurement outside the recommended range."""
        found: list[str] = []
        if self.duration_s < SHORTEST_S:
            found.append(
                f"expected at least {SHORTEST_S:g} s of speech, got {self.duration_s:.1f} s; a "
                "short recording gives an unstable voice"
            )
        if self.duration_s > LONGEST_S:
            found.append(
                f"expected at most {LONGEST_S:g} s, got {self.duration_s:.1f} s; more does not "
                "improve the voice, and with --text it delays the start of every reply"
            )
        if self.speech_share == 0:
            found.append("found no speech in the recording")
        elif self.speech_share is not None and self.speech_share < MIN_SPEECH_SHARE:
            found.append(
                f"expected speech in at least {MIN_SPEECH_SHARE:.0%} of the recording, got "
                f"{self.speech_share:.0%}; cut out long pauses, music and other sounds"
            )
        if self.snr_db is not None and self.snr_db < MIN_SNR_DB:
            found.append(
                f"expected speech at least {MIN_SNR_DB:g} dB above the noise, got "
                f"{self.snr_db:.0f} dB; the clone copies the noise, so record in a quiet room"
            )
        if self.clipped_share > MAX_CLIPPED_SHARE:
            found.append(
                f"expected at most {MAX_CLIPPED_SHARE:.1%} of clipped samples, got "
                f"{self.clipped_share:.1%}; record at a lower level"
            )
        return found


def examine_reference(samples: npt.NDArray[np.float32], speech: list[Span] | None) -> Examination:
    """Measure a recording, and remove the silence before and after its speech.

    Args:
        samples: [S] float32 in [-1, 1], mono, 24 kHz.
        speech: result of `find_speech`; None without a detector.
    """
    clipped_share = float(np.mean(np.abs(samples) >= _CLIPPED_LEVEL))
    if speech is None:
        return Examination(samples, 0.0, clipped_share)
    is_speech = np.zeros(len(samples), np.bool_)
    for start, end in speech:
        is_speech[start:end] = True
    kept = slice(None)
    if speech:
        margin = round(_MARGIN_S * SAMPLE_RATE_HZ)
        kept = slice(max(0, speech[0][0] - margin), speech[-1][1] + margin)
    return Examination(
        samples=samples[kept],
        trimmed_s=(len(samples) - len(samples[kept])) / SAMPLE_RATE_HZ,
        clipped_share=clipped_share,
        speech_share=float(is_speech[kept].mean()),
        snr_db=_snr_db(samples, is_speech) if speech else None,
    )


def find_speech(samples: npt.NDArray[np.float32]) -> list[Span]:
    """Find the speech in a recording.

    Args:
        samples: [S] float32 in [-1, 1], mono, 24 kHz.

    Returns:
        Samples of each stretch of speech, in order.

    Raises:
        ModuleNotFoundError: the package `silero-vad` is not installed.
    """
    threads = torch.get_num_threads()
    try:
        from silero_vad import get_speech_timestamps
    finally:
        torch.set_num_threads(threads)  # the package reduces them to one for the whole process
    detector = _load_detector()
    heard = soxr.resample(samples, SAMPLE_RATE_HZ, _DETECTOR_RATE_HZ, quality="HQ")
    found = get_speech_timestamps(torch.from_numpy(np.ascontiguousarray(heard)), detector)
    scale = SAMPLE_RATE_HZ / _DETECTOR_RATE_HZ
    return [(round(each["start"] * scale), round(each["end"] * scale)) for each in found]


@cache
def _load_detector() -> Any:
    from silero_vad import load_silero_vad

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit.load, in the package
        return load_silero_vad()


def _snr_db(samples: npt.NDArray[np.float32], is_speech: npt.NDArray[np.bool_]) -> float:
    """Power of the speech over that of the pauses; over the quietest tenth if pauses are short."""
    whole = len(samples) // _FRAME_SAMPLES * _FRAME_SAMPLES
    powers = np.square(samples[:whole].astype(np.float64)).reshape(-1, _FRAME_SAMPLES).mean(axis=1)
    is_pause = ~is_speech[:whole].reshape(-1, _FRAME_SAMPLES).any(axis=1)
    if is_pause.sum() >= _MIN_PAUSE_FRAMES:
        noise = float(np.median(powers[is_pause]))
    else:
        noise = float(np.sort(powers)[: max(1, round(len(powers) * _QUIETEST))].mean())
    signal = float(np.square(samples[is_speech].astype(np.float64)).mean())
    if noise <= signal * 10 ** (-_MAX_SNR_DB / 10):
        return _MAX_SNR_DB
    return 10 * float(np.log10(signal / noise))
