"""Sound to what two voices that say the same have in common: cepstra of short frames, as a stream.

Frames are made in blocks of one codec frame, so that the same audio gives the same numbers however
it was cut. This module knows no words, no reference and no voice.

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

HOP_SAMPLES = ms_to_samples(10)
WINDOW_SAMPLES = ms_to_samples(25)
CEPSTRA = 13
WIDTH = 2 * CEPSTRA
"""Numbers of a frame: its cepstra, and how they change."""

_REACH = 2
"""Frames on either side that tell how a frame changes."""
_BANDS = 26
_LOWEST_HZ, _HIGHEST_HZ = 80.0, 7_600.0
_PREEMPHASIS = np.float32(0.97)
_SILENCE, _QUIET = np.float32(1e-10), np.float32(1e-7)
"""Added to the energy of a frame and of a band, whose logarithm is taken."""
_LEFT_SAMPLES = WINDOW_SAMPLES - HOP_SAMPLES + 1
"""Of what came before, for the window of the first frame and its pre-emphasis."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Consecutive frames of a sound.

    Attributes:
        centres: [N], samples from the first sample of the sound.
        features: [N, WIDTH].
        log_energies: [N], natural logarithm of the mean square; 0.0 is full scale.
    """

    centres: Integers
    features: Floats
    log_energies: Floats

    def __len__(self) -> int:
        return len(self.centres)

    def only(self, wanted: npt.NDArray[np.bool_]) -> "Frames":
        """The frames at which `wanted` is true."""
        return Frames(self.centres[wanted], self.features[wanted], self.log_energies[wanted])


class FrameStream:
    """Frames of a sound that comes in parts of any length.

    Args:
        tract: factor that brings the sound's frequencies to where another voice has them; above
            1.0 where that voice has a shorter vocal tract.
    """

    def __init__(self, tract: float = 1.0) -> None:
        self._bank = _mel_bank(tract)
        self._rest = np.zeros(0, np.float32)
        """Samples that are in no frame yet."""
        self._left = np.zeros(_LEFT_SAMPLES, np.float32)
        self._framed_samples = 0
        self._cepstra = np.zeros((0, CEPSTRA), np.float32)
        """Of frames that wait for the next ones, behind `_REACH` that are out already."""
        self._log_energies = np.zeros(0, np.float32)
        self._centres = np.zeros(0, np.int64)

    @property
    def pushed_samples(self) -> int:
        """Length of the sound so far."""
        return self._framed_samples + len(self._rest)

    def push(self, pcm: bytes) -> list[Frames]:
        """The frames that `pcm` (PCM16, mono, 24 kHz) completes, a block each."""
        rest = np.concatenate((self._rest, _floats(pcm)))
        whole = len(rest) - len(rest) % FRAME_SAMPLES
        self._rest = rest[whole:]
        blocks: list[Frames] = []
        for start in range(0, whole, FRAME_SAMPLES):
            self._frame(rest[start : start + FRAME_SAMPLES])
            blocks.append(self._take(waiting=_REACH))
        return blocks

    def flush(self, pcm: bytes = b"") -> Frames:
        """The frames of all that is left and `pcm`, as if nothing followed; more may follow."""
        self._rest = np.concatenate((self._rest, _floats(pcm)))
        length = len(self._rest)
        if length:
            padding = -length % HOP_SAMPLES
            self._frame(np.pad(self._rest, (0, padding)))
            self._framed_samples -= padding
            self._left[:] = 0.0
        self._rest = self._rest[length:]
        if len(self._cepstra):
            self._cepstra = np.pad(self._cepstra, ((0, _REACH), (0, 0)), "edge")
        frames = self._take(waiting=0)
        self._cepstra = self._cepstra[:0]
        return frames

    def _frame(self, samples: Floats) -> None:
        """Make the frames that end with each hop of `samples`."""
        joined = np.concatenate((self._left, samples))
        self._left = joined[-_LEFT_SAMPLES:].copy()
        plain = _windows(joined[1:])
        emphasized = np.subtract(joined[1:], _PREEMPHASIS * joined[:-1], dtype=np.float32)
        cepstra = _power(_windows(emphasized)) @ self._bank
        cepstra = np.log(cepstra + _QUIET) @ _cosines()
        if not len(self._cepstra):
            cepstra = np.pad(cepstra, ((_REACH, 0), (0, 0)), "edge")
        energies = np.log(np.square(plain).mean(axis=1) + _SILENCE)
        starts = self._framed_samples + np.arange(0, len(samples), HOP_SAMPLES)
        centres = starts + HOP_SAMPLES - WINDOW_SAMPLES // 2
        self._cepstra = np.concatenate((self._cepstra, cepstra))
        self._log_energies = np.concatenate((self._log_energies, energies))
        self._centres = np.concatenate((self._centres, np.maximum(centres, 0)))
        self._framed_samples += len(samples)

    def _take(self, waiting: int) -> Frames:
        """The frames whose neighbours are known: all but the last `waiting`."""
        count = len(self._centres) - waiting
        if count <= 0:
            return Frames(
                self._centres[:0], np.zeros((0, WIDTH), np.float32), self._log_energies[:0]
            )
        cepstra = self._cepstra[: count + 2 * _REACH]
        frames = Frames(
            self._centres[:count],
            np.concatenate((cepstra[_REACH:-_REACH], _changes(cepstra)), axis=1),
            self._log_energies[:count],
        )
        self._cepstra = self._cepstra[count:]
        self._centres, self._log_energies = self._centres[count:], self._log_energies[count:]
        return frames


def frames_of(pcm: bytes, tract: float) -> Frames:
    """All frames of a whole sound (PCM16, mono, 24 kHz); `tract` as for `FrameStream`."""
    return FrameStream(tract).flush(pcm)


def _floats(pcm: bytes) -> Floats:
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(1 << 15)


def _windows(samples: Floats) -> Floats:
    """[N, WINDOW_SAMPLES], a hop apart."""
    return np.lib.stride_tricks.sliding_window_view(samples, WINDOW_SAMPLES)[::HOP_SAMPLES]


def _power(windows: Floats) -> Floats:
    """Power spectra [N, WINDOW_SAMPLES // 2 + 1] of windows [N, WINDOW_SAMPLES]."""
    spectrum = np.fft.rfft(windows * _hamming(), axis=1)
    return (spectrum.real**2 + spectrum.imag**2).astype(np.float32)


def _changes(cepstra: Floats) -> Floats:
    """Slope over two neighbours on either side, of all frames that have them."""
    near = cepstra[3:-1] - cepstra[1:-3]
    far = cepstra[4:] - cepstra[:-4]
    return ((near + 2 * far) / 10).astype(np.float32)


@cache
def _hamming() -> Floats:
    return np.hamming(WINDOW_SAMPLES).astype(np.float32)


@cache
def _mel_bank(tract: float) -> Floats:
    """Weights [WINDOW_SAMPLES // 2 + 1, _BANDS] of triangles at equal distances in mel."""
    borders = np.linspace(_mel(_LOWEST_HZ), _mel(_HIGHEST_HZ), _BANDS + 2)
    bins = _mel(tract * np.fft.rfftfreq(WINDOW_SAMPLES, 1 / SAMPLE_RATE_HZ))[:, None]
    rising = (bins - borders[:-2]) / (borders[1:-1] - borders[:-2])
    falling = (borders[2:] - bins) / (borders[2:] - borders[1:-1])
    return np.maximum(np.minimum(rising, falling), 0.0).astype(np.float32)


def _mel(hz: npt.ArrayLike) -> npt.NDArray[np.float64]:
    return 1127.0 * np.log1p(np.asarray(hz, np.float64) / 700.0)


@cache
def _cosines() -> Floats:
    """The discrete cosine transform [_BANDS, CEPSTRA]."""
    bands = np.arange(_BANDS)[:, None] + 0.5
    return np.cos(np.pi * np.arange(CEPSTRA) * bands / _BANDS).astype(np.float32)
