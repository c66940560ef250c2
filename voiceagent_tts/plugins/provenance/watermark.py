"""The watermark: small gains in time and frequency, whose signs a key selects.

Time is divided into slots of 16 ms, the telephone band into 33 bands. In each cell the audio is
1.5 dB louder or softer; a key expands into the signs, which repeat every 2.05 s. `Marker` and
`mark_together` apply them with one short minimum-phase filter per slot, so that a sample of the
output depends only on samples up to its own time: there is no look-ahead, and silence stays
silence. `detector` finds the signs again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from numpy import fft

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from voiceagent_tts.plugins.provenance.keys import WatermarkKey

SLOT_SAMPLES = 384
"""Samples from the centre of one slot to the centre of the next: 16 ms."""
SLOTS = 128
"""Slots after which the signs repeat: 2.05 s."""
PERIOD_SAMPLES = SLOTS * SLOT_SAMPLES
BANDS = 33
LOWEST_HZ = 300.0
BAND_HZ = 93.75
"""Width of a band. All bands together end at 3,394 Hz, so a telephone line passes them."""
DEPTH_DB = 1.5

_PURPOSE = b"voiceagent-tts watermark signs 1"
_TAPS = 256
_DESIGN_SIZE = 2048
_FFT_SIZE = SLOT_SAMPLES + _TAPS  # 640, a product of small primes
_SCALE = 1 << 20
_SLOTS_TOGETHER = 40
"""Slots in one computation: more leave a processor's caches, and take up to ten times as long."""

Samples = npt.NDArray[np.float64]


def signs(key: WatermarkKey) -> npt.NDArray[np.float64]:
    """Expand a key into the signs of all cells, [SLOTS, BANDS], each 1 or -1."""
    data = hashlib.shake_256(_PURPOSE + key.secret).digest(SLOTS * BANDS // 8)
    bits = np.unpackbits(np.frombuffer(data, np.uint8))
    return 2.0 * bits.reshape(SLOTS, BANDS).astype(np.float64) - 1.0


def bands_of_transform(size: int) -> npt.NDArray[np.int64]:
    """Return the band of each bin of a real transform of `size` samples; -1 outside of all."""
    frequencies_hz = np.arange(size // 2 + 1) * (SAMPLE_RATE_HZ / size)
    band = np.floor((frequencies_hz - LOWEST_HZ) / BAND_HZ).astype(np.int64)
    return np.where((band >= 0) & (band < BANDS), band, -1)


@dataclass(frozen=True, slots=True)
class Unmarked:
    """Audio of one context that is not marked yet.

    Attributes:
        inputs: what the filter of each slot reads, [slots, _FFT_SIZE] float64.
        slot: the number of the first slot.
        past_samples: samples of the first slot that were marked before.
        samples: samples to mark.
    """

    inputs: Samples
    slot: int
    past_samples: int
    samples: int


class Marker:
    """Marks the audio of one context while it is sent.

    The output has as many samples as the input, and is bit for bit independent of how the input was
    cut into chunks: the filters have integer taps, so every filtered sample is an integer that the
    rounding below recovers exactly from the Fourier transform.
    """

    def __init__(self, key: WatermarkKey) -> None:
        self.key = key
        self._slot = 0
        self._history = np.zeros(_TAPS)
        """Input from `_TAPS` samples before the current slot to the end of the input."""

    def push(self, pcm: bytes) -> bytes:
        """Mark whole PCM16 samples at 24 kHz; returns as many."""
        [marked] = mark_together(self.key, [self.take(pcm)])
        return marked

    def take(self, pcm: bytes) -> Unmarked:
        """Take whole PCM16 samples at 24 kHz for `mark_together`."""
        samples = np.frombuffer(pcm, "<i2")
        past_samples = len(self._history) - _TAPS  # of the current slot
        window = np.concatenate((self._history, samples))
        complete, rest = divmod(past_samples + len(samples), SLOT_SAMPLES)
        slots = complete + (rest > 0)
        # Where the last slot is not complete, its other samples are taken as silence.
        padded = np.zeros(slots * SLOT_SAMPLES + _TAPS)
        padded[: len(window)] = window
        step = padded.itemsize
        inputs = np.ndarray(
            (slots, _FFT_SIZE), padded.dtype, padded, strides=(SLOT_SAMPLES * step, step)
        )
        unmarked = Unmarked(inputs, self._slot, past_samples, len(samples))
        self._slot = (self._slot + complete) % SLOTS
        self._history = window[complete * SLOT_SAMPLES :].copy()
        return unmarked


def mark_together(key: WatermarkKey, audio: Sequence[Unmarked]) -> list[bytes]:
    """Mark audio of several contexts; returns PCM16 of as many samples for each.

    Eight frames of 80 ms take a half of the time that they take one by one.
    """
    inputs = np.concatenate([each.inputs for each in audio])
    numbers = np.concatenate([each.slot + np.arange(len(each.inputs)) for each in audio])
    marked = np.empty((len(inputs), SLOT_SAMPLES), "<i2")
    for at in range(0, len(inputs), _SLOTS_TOGETHER):
        part = slice(at, at + _SLOTS_TOGETHER)
        marked[part] = _filtered(_filter_spectra(key), inputs[part], numbers[part])
    ends = np.cumsum([len(each.inputs) for each in audio])
    return [
        part.reshape(-1)[each.past_samples :][: each.samples].tobytes()
        for part, each in zip(np.split(marked, ends[:-1]), audio, strict=True)
    ]


def _filtered(
    filters: npt.NDArray[np.complex128], inputs: Samples, numbers: npt.NDArray[np.int64]
) -> Samples:
    """Filter the inputs of the slots with these numbers; returns [slots, SLOT_SAMPLES] integers."""
    spectra = fft.rfft(inputs)
    products = np.empty((2, *spectra.shape), spectra.dtype)
    np.multiply(spectra, filters[numbers % SLOTS], out=products[0])
    np.multiply(spectra, filters[(numbers + 1) % SLOTS], out=products[1])
    both = fft.irfft(products, _FFT_SIZE)[..., _TAPS:]
    early, late = np.rint(both, out=both)
    late -= early
    late *= _FADE_IN
    late += early
    late *= 1 / _SCALE
    return np.clip(np.rint(late, out=late), -32_768, 32_767)


_FADE_IN = 0.5 - 0.5 * np.cos(np.pi * (np.arange(SLOT_SAMPLES) + 0.5) / SLOT_SAMPLES)
"""Weight of the next slot's filter within a slot: each slot is loudest at its centre."""


@cache
def _filter_spectra(key: WatermarkKey) -> npt.NDArray[np.complex128]:
    """Transforms of the filters of all slots, [SLOTS, _FFT_SIZE / 2 + 1]; their taps are integers.

    The filters are of minimum phase, found by folding the real cepstrum. Source: A. V. Oppenheim,
    R. W. Schafer, Discrete-Time Signal Processing, 3rd ed., section 13.5.4.
    """
    band = bands_of_transform(_DESIGN_SIZE)
    log_gains = np.zeros((SLOTS, len(band)))
    log_gains[:, band >= 0] = signs(key)[:, band[band >= 0]] * DEPTH_DB * np.log(10) / 20
    folding = np.zeros(_DESIGN_SIZE)
    folding[[0, _DESIGN_SIZE // 2]] = 1
    folding[1 : _DESIGN_SIZE // 2] = 2
    cepstra = fft.irfft(log_gains, axis=1) * folding
    taps = fft.irfft(np.exp(fft.rfft(cepstra, axis=1)), axis=1)[:, :_TAPS]
    half = _TAPS // 2
    taps[:, half:] *= 0.5 + 0.5 * np.cos(np.pi * np.arange(half) / half)  # no step at the cut
    return fft.rfft(np.rint(taps * _SCALE), _FFT_SIZE)


def mark(pcm: bytes, key: WatermarkKey) -> bytes:
    """Mark complete audio: PCM16 at 24 kHz."""
    assert len(pcm) % BYTES_PER_SAMPLE == 0, len(pcm)
    return Marker(key).push(pcm)
