"""Audio to spectra of short frames with their neighbours, as a stream.

Frames are made in blocks of one codec frame, so the spectra do not depend on how the audio was cut
into pushes.

Source: mel scale and filters as in HTK (Young et al., The HTK Book, sections 5.2 and 5.4).
"""

from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ, ms_to_samples

Floats: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[np.int64]
Booleans: TypeAlias = npt.NDArray[np.bool_]

HOP_SAMPLES = ms_to_samples(10)
WINDOW_SAMPLES = ms_to_samples(25)
BANDS = 26
FRAMES_BEFORE, FRAMES_AFTER = 9, 5
"""Neighbours of a frame that the phone model sees. Those after it delay every word by 50 ms."""
FRAMES_SEEN = FRAMES_BEFORE + 1 + FRAMES_AFTER

_LOWEST_HZ, _HIGHEST_HZ = 80.0, 7_600.0
_PREEMPHASIS = np.float32(0.97)
_FRAME_ENERGY_FLOOR, _BAND_ENERGY_FLOOR = np.float32(1e-10), np.float32(1e-7)
"""Added to the energy of a frame or band before its logarithm."""
_LEFT_SAMPLES = WINDOW_SAMPLES - HOP_SAMPLES + 1
"""Earlier samples that the first frame needs for its window and its pre-emphasis."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Consecutive analysis frames.

    Attributes:
        centres: [N] int64, sample at the centre of each frame, from the first sample of the audio.
        spectra: [N, FRAMES_SEEN, BANDS] float32, log energies of the mel bands of each frame and
            its neighbours; the frame itself is at index `FRAMES_BEFORE`.
        log_energies: [N] float32, natural logarithm of the mean square; 0.0 is full scale.
    """

    centres: Integers
    spectra: Floats
    log_energies: Floats

    def __len__(self) -> int:
        return len(self.centres)

    @property
    def own_spectra(self) -> Floats:
        """[N, BANDS], the spectra without neighbours."""
        return self.spectra[:, FRAMES_BEFORE]


def amplitudes_of(spectra: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Amplitude of each frame, [N], from its spectrum without neighbours, [N, BANDS]."""
    return np.sqrt(np.exp(spectra).sum(axis=1))


class FrameStream:
    """Computes the frames of audio that arrives in parts of any length."""

    def __init__(self) -> None:
        self._unframed = np.zeros(0, np.float32)
        """[S] samples that belong to no frame yet."""
        self._left = np.zeros(_LEFT_SAMPLES, np.float32)
        self._framed_samples = 0
        self._bands = np.zeros((0, BANDS), np.float32)
        """[N, BANDS], spectra of frames that wait for the next ones, after `FRAMES_BEFORE` already
        emitted."""
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
            blocks.append(self._pop_frames(waiting=FRAMES_AFTER))
        return blocks

    def flush(self, pcm: bytes = b"") -> Frames:
        """Return the frames of `pcm` and of all earlier audio, as if the last one were repeated.

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
        if len(self._bands):
            self._bands = np.pad(self._bands, ((0, FRAMES_AFTER), (0, 0)), "edge")
        frames = self._pop_frames(waiting=0)
        self._bands = self._bands[:0]
        return frames

    def _frame(self, samples: Floats) -> None:
        joined = np.concatenate((self._left, samples))
        self._left = joined[-_LEFT_SAMPLES:].copy()
        emphasized = np.subtract(joined[1:], _PREEMPHASIS * joined[:-1], dtype=np.float32)
        bands = np.log(_power(_windows(emphasized)) @ _mel_bank() + _BAND_ENERGY_FLOOR)
        if not len(self._bands):
            bands = np.pad(bands, ((FRAMES_BEFORE, 0), (0, 0)), "edge")
        windows = _windows(joined[1:])
        energies = np.einsum("nw,nw->n", windows, windows) / np.float32(WINDOW_SAMPLES)
        starts = self._framed_samples + np.arange(0, len(samples), HOP_SAMPLES)
        centres = starts + HOP_SAMPLES - WINDOW_SAMPLES // 2
        self._bands = np.concatenate((self._bands, bands))
        energies = np.log(energies + _FRAME_ENERGY_FLOOR)
        self._log_energies = np.concatenate((self._log_energies, energies))
        self._centres = np.concatenate((self._centres, np.maximum(centres, 0)))
        self._framed_samples += len(samples)

    def _pop_frames(self, waiting: int) -> Frames:
        """Remove and return the frames whose neighbours are known: all but the last `waiting`."""
        count = max(0, len(self._centres) - waiting)
        seen = self._bands[: count + FRAMES_SEEN - 1 if count else 0]
        frames = Frames(
            self._centres[:count], _with_neighbours(seen, count), self._log_energies[:count]
        )
        self._bands = self._bands[count:]
        self._centres, self._log_energies = self._centres[count:], self._log_energies[count:]
        return frames


def frames_of(pcm: bytes) -> Frames:
    """All frames of complete audio (PCM16, mono, 24 kHz)."""
    return FrameStream().flush(pcm)


def _with_neighbours(bands: Floats, count: int) -> Floats:
    """[count, FRAMES_SEEN, BANDS] of consecutive spectra [count + FRAMES_SEEN - 1, BANDS]."""
    if not count:
        return np.zeros((0, FRAMES_SEEN, BANDS), np.float32)
    return sliding_window_view(bands, FRAMES_SEEN, axis=0).transpose(0, 2, 1)


def _floats(pcm: bytes) -> Floats:
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(1 << 15)


def _windows(samples: Floats) -> Floats:
    """Overlapping windows [N, WINDOW_SAMPLES]."""
    return sliding_window_view(samples, WINDOW_SAMPLES)[::HOP_SAMPLES]


def _power(windows: Floats) -> Floats:
    """Power spectra [N, WINDOW_SAMPLES // 2 + 1] of windows [N, WINDOW_SAMPLES]."""
    spectrum = np.fft.rfft(windows * _hamming(), axis=1)
    return (spectrum.real**2 + spectrum.imag**2).astype(np.float32)


@cache
def _hamming() -> Floats:
    return np.hamming(WINDOW_SAMPLES).astype(np.float32)


@cache
def _mel_bank() -> Floats:
    """Weights [WINDOW_SAMPLES // 2 + 1, BANDS] of triangular filters, equally spaced in mel."""
    borders = np.linspace(_mel(_LOWEST_HZ), _mel(_HIGHEST_HZ), BANDS + 2)
    bins = _mel(np.fft.rfftfreq(WINDOW_SAMPLES, 1 / SAMPLE_RATE_HZ))[:, None]
    rising = (bins - borders[:-2]) / (borders[1:-1] - borders[:-2])
    falling = (borders[2:] - bins) / (borders[2:] - borders[1:-1])
    return np.maximum(np.minimum(rising, falling), 0.0).astype(np.float32)


def _mel(hz: npt.ArrayLike) -> npt.NDArray[np.float64]:
    return 1127.0 * np.log1p(np.asarray(hz, np.float64) / 700.0)
