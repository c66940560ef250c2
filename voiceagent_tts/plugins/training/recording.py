"""Turns one recording into samples to train on: checked, 24 kHz, without silence, equally loud.

Source: ITU-R BS.1770-4 for loudness, by pyloudnorm; Silero's detector for speech.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.recordings.reference import (
    MAX_CLIPPED_SHARE,
    examine_reference,
    find_speech,
)
from voiceagent_tts.plugins.training.manifest import Problem
from voiceagent_tts.plugins.training.options import check_ranges

Samples = npt.NDArray[np.float32]

_SILENCE_LEVEL = 0.001  # -60 dBFS, below the noise of a recording in a quiet room
_PEAK = 0.98
_RANGES = {
    "min_s": (0, 600),
    "max_s": (0.1, 600),
    "min_rate_hz": (1, 1_000_000),
    "loudness_lufs": (-70, 0),
}
_MIN_METER_S = 0.4
"""Length of a block of BS.1770; shorter audio has no loudness by that measure."""


class BadRecordingError(Exception):
    """A recording cannot be trained on.

    Args:
        problem: stable name of the reason.
        detail: what was expected and what was found.
    """

    def __init__(self, problem: Problem, detail: str) -> None:
        super().__init__(detail)
        self.problem = problem
        self.detail = detail


@dataclass(frozen=True, slots=True)
class RecordingLimits:
    """Which recordings are accepted, and how loud they become.

    Attributes:
        min_s: minimum length after trimming.
        max_s: maximum length after trimming; the memory of a training step grows with it.
        min_rate_hz: minimum sample rate. A lower one lacks the high frequencies of speech, which
            the voice would then lack too.
        loudness_lufs: loudness that every clip is brought to.
    """

    min_s: float = 1.0
    max_s: float = 20.0
    min_rate_hz: int = 16_000
    loudness_lufs: float = -23.0

    def __post_init__(self) -> None:
        check_ranges(self, _RANGES)


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A recording that is ready to be encoded.

    Attributes:
        samples: [S] float32 in [-1, 1], mono, 24 kHz.
        trimmed_s: silence that was removed from both ends.
        snr_db: power of the speech relative to the noise.
    """

    samples: Samples
    trimmed_s: float
    snr_db: float

    @property
    def duration_s(self) -> float:
        """Length of `samples`."""
        return len(self.samples) / SAMPLE_RATE_HZ


def read_recording(path: Path, limits: RecordingLimits) -> Recording:
    """Read and check a recording, remove the silence around it, and set its loudness.

    Raises:
        BadRecordingError: the file cannot be read, or its audio is outside the limits.
    """
    samples = _decode(path, limits)
    if np.abs(samples).max(initial=0.0) < _SILENCE_LEVEL:
        raise BadRecordingError(Problem.SILENT, "expected speech, found silence")
    speech = find_speech(samples)
    if not speech:
        raise BadRecordingError(Problem.SILENT, "expected speech, found none")
    examined = examine_reference(samples, speech)
    if examined.clipped_share > MAX_CLIPPED_SHARE:
        raise BadRecordingError(
            Problem.CLIPPED,
            f"expected at most {MAX_CLIPPED_SHARE:.1%} of samples at full scale, got "
            f"{examined.clipped_share:.1%}",
        )
    _check_length(examined.duration_s, limits)
    assert examined.snr_db is not None, "speech was found"
    levelled = set_loudness(examined.samples, limits.loudness_lufs)
    return Recording(levelled, examined.trimmed_s, examined.snr_db)


def set_loudness(samples: Samples, loudness_lufs: float) -> Samples:
    """Scale audio to a loudness, or to the highest loudness below it that clips no sample.

    Args:
        samples: [S] float32, mono, 24 kHz.
        loudness_lufs: integrated loudness by BS.1770.
    """
    if len(samples) < _MIN_METER_S * SAMPLE_RATE_HZ:
        return samples
    import pyloudnorm  # loads SciPy, which takes most of a second

    measured = pyloudnorm.Meter(SAMPLE_RATE_HZ).integrated_loudness(samples)
    if not np.isfinite(measured):
        return samples
    gain = min(10 ** ((loudness_lufs - measured) / 20), _PEAK / np.abs(samples).max())
    return (samples * gain).astype(np.float32)


def _decode(path: Path, limits: RecordingLimits) -> Samples:
    try:
        with path.open("rb") as opened, soundfile.SoundFile(opened) as file:
            if file.samplerate < limits.min_rate_hz:
                raise BadRecordingError(
                    Problem.WRONG_RATE,
                    f"expected at least {limits.min_rate_hz} Hz, got {file.samplerate} Hz",
                )
            rate_hz, most = file.samplerate, _longest_file_s(limits) * file.samplerate
            samples = file.read(int(most) + 1, dtype="float32", always_2d=True).mean(axis=1)
    except (soundfile.LibsndfileError, OSError) as error:
        raise BadRecordingError(
            Problem.UNREADABLE, f"expected an audio file that can be decoded; {_reason(error)}"
        ) from error
    if len(samples) > most:
        raise BadRecordingError(
            Problem.TOO_LONG, f"expected at most {limits.max_s:g} s, got more; split it"
        )
    if not np.isfinite(samples).all():
        raise BadRecordingError(Problem.UNREADABLE, "expected finite samples, found NaN")
    return np.ascontiguousarray(soxr.resample(samples, rate_hz, SAMPLE_RATE_HZ, quality="HQ"))


def _longest_file_s(limits: RecordingLimits) -> float:
    """Length from which a file is not examined: trimming removes silence, never minutes."""
    return 3 * limits.max_s


def _check_length(duration_s: float, limits: RecordingLimits) -> None:
    if duration_s < limits.min_s:
        raise BadRecordingError(
            Problem.TOO_SHORT, f"expected at least {limits.min_s:g} s, got {duration_s:.2f} s"
        )
    if duration_s > limits.max_s:
        raise BadRecordingError(
            Problem.TOO_LONG,
            f"expected at most {limits.max_s:g} s, got {duration_s:.1f} s; split it",
        )


def _reason(error: Exception) -> str:
    text = getattr(error, "error_string", None) or getattr(error, "strerror", None)
    return str(text or type(error).__name__).strip()
