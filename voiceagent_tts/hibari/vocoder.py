"""Spectra to samples, frame by frame: pulses at the pitch, shaped noise, and a free part.

    S = e^harmonic * e^(i pi tanh angle) * STFT(pulses) + e^noise * Z + e^free * e^(i phase)

and the samples are the inverse STFT of S (Hann window of 1,200 samples, a frame every 300). A
sample is complete when the four frames that overlap it are there, so samples follow the frames at a
distance of two frames.

Source: README of hibari-tts 0.2.1, "ONNX interface (for ports)".
"""

import numpy as np
import numpy.typing as npt

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.phonemes.network import Floats

BINS = 601
"""Frequencies of a spectrum."""
HOP_SAMPLES = 300
"""Samples of a frame: 12.5 ms."""
_WINDOW_SAMPLES = 1_200
_OVERLAP = _WINDOW_SAMPLES // HOP_SAMPLES
_HALF_SAMPLES = _WINDOW_SAMPLES // 2
_WINDOW = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW_SAMPLES) / _WINDOW_SAMPLES)).astype(
    np.float32
)
_PULSE_WINDOW = _WINDOW / np.float32(HOP_SAMPLES)
_SQUARED_WINDOW = (_WINDOW * _WINDOW).reshape(_OVERLAP, HOP_SAMPLES)
_MIN_WEIGHT = 1e-11
_LOWEST_PITCH_HZ = 40.0
_HIGHEST_HARMONIC_HZ = 11_000.0
_MAX_LOG_MAGNITUDE = 7.0
_SMALL_SINE = 2e-3
"""Below it a pulse's formula is replaced by its limit."""


class Vocoder:
    """Turns the spectra of one text into samples, in order.

    Args:
        pitch_hz: [F] pitch of all frames of the text.
        start: first frame whose spectrum will be given.
    """

    def __init__(self, pitch_hz: Floats, start: int, noise: np.random.Generator) -> None:
        self._pitch_hz = pitch_hz
        self._noise = noise
        first_sample = start * HOP_SAMPLES - _HALF_SAMPLES
        self._pulses = np.zeros(max(0, -first_sample), np.float32)
        """Pulses from half a window before the next frame on; there are none before the text."""
        self._pulses_end = max(0, first_sample)
        """Sample of the text at which `_pulses` ends."""
        self._turns = 0.0
        """Phase there."""
        self._overlap = np.zeros((2, _OVERLAP - 1, HOP_SAMPLES), np.float32)
        """Sums of the frames so far, and of their squared windows, that later frames add to."""
        self._lead_samples = _HALF_SAMPLES
        """Samples before the first frame, which are not returned."""

    def samples(self, spectra: Floats, *, is_last: bool = False) -> Floats:
        """Return the samples that the next frames complete; of the last ones, all that remain.

        spectra: [n, 5 * BINS] as from `Network.spectra`.
        """
        frames = np.fft.irfft(self._combined(spectra), _WINDOW_SAMPLES, axis=1)
        frames = frames.astype(np.float32, copy=False) * _WINDOW
        count = len(frames)
        sums = np.zeros((2, count + _OVERLAP - 1, HOP_SAMPLES), np.float32)
        sums[:, : _OVERLAP - 1] = self._overlap
        blocks = frames.reshape(count, _OVERLAP, HOP_SAMPLES)
        for number in range(_OVERLAP):
            sums[0, number : number + count] += blocks[:, number]
            sums[1, number : number + count] += _SQUARED_WINDOW[number]
        self._overlap = sums[:, count:]
        ready = sums[:, : count + (_HALF_SAMPLES // HOP_SAMPLES if is_last else 0)]
        whole = (ready[0] / np.maximum(ready[1], _MIN_WEIGHT)).reshape(-1)
        lead, self._lead_samples = self._lead_samples, max(0, self._lead_samples - len(whole))
        return whole[lead:]

    def _combined(self, spectra: Floats) -> npt.NDArray[np.complex64]:
        harmonic, angle, noise, free, phase = spectra.reshape(len(spectra), 5, BINS).swapaxes(0, 1)
        combined = self._pulse_spectra(len(spectra))
        combined *= _polar(harmonic, np.tanh(angle) * np.float32(np.pi))
        random = self._noise.standard_normal((len(spectra), 2 * BINS), np.float32)
        combined += random.view(np.complex64) * _magnitude(noise)
        combined += _polar(free, phase)
        return combined

    def _pulse_spectra(self, count: int) -> npt.NDArray[np.complex64]:
        needed = (count - 1) * HOP_SAMPLES + _WINDOW_SAMPLES
        self._pulses = np.concatenate((self._pulses, self._next_pulses(needed)))
        windows = np.lib.stride_tricks.sliding_window_view(self._pulses[:needed], _WINDOW_SAMPLES)
        spectra = np.fft.rfft(windows[::HOP_SAMPLES] * _PULSE_WINDOW, axis=1)
        self._pulses = self._pulses[count * HOP_SAMPLES :]
        return spectra.astype(np.complex64, copy=False)

    def _next_pulses(self, needed: int) -> Floats:
        """The pulses that are missing of `needed`: cosines of all harmonics, zero if unvoiced.

        Their sum is sin((H + 1/2) t) / (2 sin(t / 2)) - 1/2 for a phase t and H harmonics.
        """
        count = needed - len(self._pulses)
        places = (np.arange(self._pulses_end, self._pulses_end + count) + 0.5) / HOP_SAMPLES - 0.5
        pitch = np.interp(places, np.arange(len(self._pitch_hz)), self._pitch_hz)
        is_voiced = pitch > _LOWEST_PITCH_HZ
        pitch = np.maximum(pitch, _LOWEST_PITCH_HZ)
        turns = self._turns + np.cumsum(pitch) / SAMPLE_RATE_HZ
        self._pulses_end += count
        self._turns = float(turns[-1] % 1.0) if count else self._turns
        phase = (2 * np.pi * (turns % 1.0)).astype(np.float32)
        halves = np.floor(_HIGHEST_HARMONIC_HZ / pitch).astype(np.float32) + np.float32(0.5)
        divisor = 2 * np.sin(phase / 2)
        is_peak = np.abs(divisor) <= _SMALL_SINE
        sums = np.sin(halves * phase) / np.where(is_peak, 1, divisor)
        sums = np.where(is_peak, halves, sums) - np.float32(0.5)
        return np.where(is_voiced, sums, 0).astype(np.float32)


def _magnitude(logarithm: Floats) -> Floats:
    return np.exp(np.minimum(logarithm, np.float32(_MAX_LOG_MAGNITUDE)))


def _polar(logarithm: Floats, angle: Floats) -> npt.NDArray[np.complex64]:
    polar = np.empty(angle.shape, np.complex64)
    np.cos(angle, out=polar.real)
    np.sin(angle, out=polar.imag)
    polar *= _magnitude(logarithm)
    return polar
