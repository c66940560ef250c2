"""Audio to cepstral features of short frames, as a stream.

Cepstra are what two voices that say the same words have in common. Frames are made in blocks of
one codec frame, so the features do not depend on how the audio was cut into pushes. This module
knows no words, no reference and no voice.

Source: mel scale, cepstra and regression over neighbours as in HTK (Young et al., The HTK Book,
sections 5.4, 5.6 and 5.9).
"""

from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ, ms_to_samples

Floats: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[np.int64]
Booleans: TypeAlias = npt.NDArray[np.bool_]

HOP_SAMPLES = ms_to_samples(10)
WINDOW_SAMPLES = ms_to_samples(25)
CEPSTRA = 13
WIDTH = 2 * CEPSTRA
"""Features per frame: the cepstra and their deltas."""

_DELTA_REACH = 2
"""Frames on either side from which a delta is computed."""
BANDS = 26
_LOWEST_HZ, _HIGHEST_HZ = 80.0, 7_600.0
_PREEMPHASIS = np.float32(0.97)
_FRAME_ENERGY_FLOOR, _BAND_ENERGY_FLOOR = np.float32(1e-10), np.float32(1e-7)
"""Added to the energy of a frame or band before its logarithm."""
_PITCHED_BINS = slice(2, 26)
"""Bins of the spectrum (80 to 1,000 Hz) in which a voice is periodic."""
_SHORTEST_LAG, _LONGEST_LAG, _LAG_STEP = 60, 300, 3
"""Periods of voices in samples: 400 to 80 Hz. Below 100 Hz the window holds too few of them, so the
voicing of very deep voices is 0.6 to 0.75."""
_VOICING_SMOOTHING = np.full(2 * _DELTA_REACH + 1, 1 / (2 * _DELTA_REACH + 1))
_LEFT_SAMPLES = WINDOW_SAMPLES - HOP_SAMPLES + 1
"""Earlier samples that the first frame needs for its window and its pre-emphasis."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Consecutive analysis frames.

    Attributes:
        centres: [N] int64, sample at the centre of each frame, from the first sample of the audio.
        features: [N, WIDTH] float32, cepstra and their deltas.
        log_energies: [N] float32, natural logarithm of the mean square; 0.0 is full scale.
        voicing: [N] float32, how periodic the sound around each frame is; about 0.45 for
            noise, 0.9 for vowels.
    """

    centres: Integers
    features: Floats
    log_energies: Floats
    voicing: Floats

    def __len__(self) -> int:
        return len(self.centres)

    def select(self, mask: Booleans) -> "Frames":
        """The frames where `mask` [N] is true."""
        return Frames(
            self.centres[mask], self.features[mask], self.log_energies[mask], self.voicing[mask]
        )


class FrameStream:
    """Computes the frames of audio that arrives in parts of any length.

    Args:
        vtln_warp: factor on the frequency axis (vocal tract length normalisation) that moves this
            voice's formants to those of another; above 1.0 where the other vocal tract is shorter.
    """

    def __init__(self, vtln_warp: float = 1.0) -> None:
        self._mel_bank = _mel_bank(vtln_warp)
        self._unframed = np.zeros(0, np.float32)
        """[S] samples that belong to no frame yet."""
        self._left = np.zeros(_LEFT_SAMPLES, np.float32)
        self._framed_samples = 0
        self._cepstra = np.zeros((0, CEPSTRA + 1), np.float32)
        """[N, CEPSTRA + 1], cepstra and periodicity of frames that wait for the next ones, after
        `_DELTA_REACH` already emitted."""
        self._log_energies = np.zeros(0, np.float32)
        self._centres = np.zeros(0, np.int64)

    @property
    def pushed_samples(self) -> int:
        """Length of the audio so far."""
        return self._framed_samples + len(self._unframed)

    def push(self, pcm: bytes) -> list[Frames]:
        """Return the frames that `pcm` (PCM16, mono, 24 kHz) completes, one block per entry."""
        samples = np.concatenate((self._unframed, _floats(pcm)))
        whole = len(samples) - len(samples) % FRAME_SAMPLES
        self._unframed = samples[whole:]
        blocks: list[Frames] = []
        for start in range(0, whole, FRAME_SAMPLES):
            self._frame(samples[start : start + FRAME_SAMPLES])
            blocks.append(self._pop_frames(waiting=_DELTA_REACH))
        return blocks

    def flush(self, pcm: bytes = b"") -> Frames:
        """Return the frames of `pcm` and of all earlier audio, as if silence followed.

        More audio may be pushed afterwards.
        """
        self._unframed = np.concatenate((self._unframed, _floats(pcm)))
        length = len(self._unframed)
        if length:
            padding = -length % HOP_SAMPLES
            self._frame(np.pad(self._unframed, (0, padding)))
            self._framed_samples -= padding
            self._left[:] = 0.0
        self._unframed = self._unframed[length:]
        if len(self._cepstra):
            self._cepstra = np.pad(self._cepstra, ((0, _DELTA_REACH), (0, 0)), "edge")
        frames = self._pop_frames(waiting=0)
        self._cepstra = self._cepstra[:0]
        return frames

    def _frame(self, samples: Floats) -> None:
        """Compute the frames that end with each hop of `samples`."""
        joined = np.concatenate((self._left, samples))
        self._left = joined[-_LEFT_SAMPLES:].copy()
        plain = _windows(joined[1:])
        emphasized = np.subtract(joined[1:], _PREEMPHASIS * joined[:-1], dtype=np.float32)
        power = _power(_windows(emphasized))
        bands = np.log(power @ self._mel_bank + _BAND_ENERGY_FLOOR)
        cepstra = np.column_stack((bands @ _cosines(), _periodicity(power)))
        if not len(self._cepstra):
            cepstra = np.pad(cepstra, ((_DELTA_REACH, 0), (0, 0)), "edge")
        energies = np.log(np.square(plain).mean(axis=1) + _FRAME_ENERGY_FLOOR)
        starts = self._framed_samples + np.arange(0, len(samples), HOP_SAMPLES)
        centres = starts + HOP_SAMPLES - WINDOW_SAMPLES // 2
        self._cepstra = np.concatenate((self._cepstra, cepstra))
        self._log_energies = np.concatenate((self._log_energies, energies))
        self._centres = np.concatenate((self._centres, np.maximum(centres, 0)))
        self._framed_samples += len(samples)

    def _pop_frames(self, waiting: int) -> Frames:
        """Remove and return the frames whose neighbours are known: all but the last `waiting`."""
        count = len(self._centres) - waiting
        if count <= 0:
            nothing = self._log_energies[:0]
            return Frames(self._centres[:0], np.zeros((0, WIDTH), np.float32), nothing, nothing)
        cepstra = self._cepstra[: count + 2 * _DELTA_REACH, :CEPSTRA]
        periodicity = self._cepstra[: count + 2 * _DELTA_REACH, CEPSTRA]
        frames = Frames(
            self._centres[:count],
            np.concatenate((cepstra[_DELTA_REACH:-_DELTA_REACH], _deltas(cepstra)), axis=1),
            self._log_energies[:count],
            np.convolve(periodicity, _VOICING_SMOOTHING, "valid").astype(np.float32),
        )
        self._cepstra = self._cepstra[count:]
        self._centres, self._log_energies = self._centres[count:], self._log_energies[count:]
        return frames


def frames_of(pcm: bytes, vtln_warp: float) -> Frames:
    """All frames of complete audio (PCM16, mono, 24 kHz); `vtln_warp` as for `FrameStream`."""
    return FrameStream(vtln_warp).flush(pcm)


def _floats(pcm: bytes) -> Floats:
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(1 << 15)


def _windows(samples: Floats) -> Floats:
    """[N, WINDOW_SAMPLES], one window per hop."""
    return np.lib.stride_tricks.sliding_window_view(samples, WINDOW_SAMPLES)[::HOP_SAMPLES]


def _power(windows: Floats) -> Floats:
    """Power spectra [N, WINDOW_SAMPLES // 2 + 1] of windows [N, WINDOW_SAMPLES]."""
    spectrum = np.fft.rfft(windows * _hamming(), axis=1)
    return (spectrum.real**2 + spectrum.imag**2).astype(np.float32)


def _deltas(cepstra: Floats) -> Floats:
    """Regression slope of each cepstrum over two neighbours on either side.

    Frames without all four neighbours have no delta.
    """
    near = cepstra[3:-1] - cepstra[1:-3]
    far = cepstra[4:] - cepstra[:-4]
    return ((near + 2 * far) / 10).astype(np.float32)


def _periodicity(power: Floats) -> Floats:
    """Highest autocorrelation [N] of the low frequencies at the lags of a voice's pitch.

    It is that of the analysis window, of which `power` is the spectrum, relative to its energy.
    """
    low = power[:, _PITCHED_BINS]
    correlations = low @ _pitch_cosines()
    return correlations.max(axis=1) / (low @ _deemphasis() + _FRAME_ENERGY_FLOOR)


@cache
def _deemphasis() -> Floats:
    """Factors [bins] on powers at low frequencies that undo the pre-emphasis."""
    radians = 2 * np.pi * np.arange(WINDOW_SAMPLES // 2 + 1)[_PITCHED_BINS] / WINDOW_SAMPLES
    return (1 / np.square(np.abs(1 - _PREEMPHASIS * np.exp(-1j * radians)))).astype(np.float32)


@cache
def _pitch_cosines() -> Floats:
    """Weights [bins, lags] that turn powers into autocorrelations, without the window's own."""
    lags = np.arange(_SHORTEST_LAG, _LONGEST_LAG, _LAG_STEP)
    window = np.square(np.abs(np.fft.rfft(_hamming())))
    own = np.fft.irfft(window)[lags] / np.fft.irfft(window)[0]
    bins = np.arange(WINDOW_SAMPLES // 2 + 1)[_PITCHED_BINS, None]
    cosines = np.cos(2 * np.pi * bins * lags / WINDOW_SAMPLES)
    return (_deemphasis()[:, None] * cosines / own).astype(np.float32)


@cache
def _hamming() -> Floats:
    return np.hamming(WINDOW_SAMPLES).astype(np.float32)


@cache
def _mel_bank(vtln_warp: float) -> Floats:
    """Weights [WINDOW_SAMPLES // 2 + 1, BANDS] of triangular filters, equally spaced in mel."""
    borders = np.linspace(_mel(_LOWEST_HZ), _mel(_HIGHEST_HZ), BANDS + 2)
    bins = _mel(vtln_warp * np.fft.rfftfreq(WINDOW_SAMPLES, 1 / SAMPLE_RATE_HZ))[:, None]
    rising = (bins - borders[:-2]) / (borders[1:-1] - borders[:-2])
    falling = (borders[2:] - bins) / (borders[2:] - borders[1:-1])
    return np.maximum(np.minimum(rising, falling), 0.0).astype(np.float32)


def _mel(hz: npt.ArrayLike) -> npt.NDArray[np.float64]:
    return 1127.0 * np.log1p(np.asarray(hz, np.float64) / 700.0)


@cache
def _cosines() -> Floats:
    """Basis [BANDS, CEPSTRA] of the discrete cosine transform."""
    bands = np.arange(BANDS)[:, None] + 0.5
    return np.cos(np.pi * np.arange(CEPSTRA) * bands / BANDS).astype(np.float32)
