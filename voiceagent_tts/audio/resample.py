"""Streaming resampling with a look-ahead of a few milliseconds.

A polyphase FIR filter: output `n` is the low-pass filtered input at the time of `n`. The delay is
`REACH` samples of the lower rate: from 24 kHz it is 4 ms to 8 kHz, 2 ms to 16 kHz and 1.3 ms to
48 kHz. soxr's stream works in blocks and delays 75, 38 and 39 ms (`HQ`) or 40, 20 and 20 ms (`LQ`),
which would be added to every first audio.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

REACH = 32
"""Reach of the filter on each side, in samples of the lower of the two rates."""

_ATTENUATION_DB = 80.0
_COEFFICIENT_SCALE = 1 << 24
_BLOCK_SAMPLES = 128
"""Minimum outputs of a block: smaller blocks are slow, larger ones waste work on short chunks."""


class Resampler:
    """Resamples one stream of PCM16 from `source_hz` to `target_hz`.

    Output `n` is at the time `n / target_hz` of the input: the clock is not shifted, but the last
    outputs are known only later. The output is bit for bit independent of how the input was cut
    into chunks: coefficients and samples are integers, and all their sums are exact in float64.

    Args:
        source_hz: rate of the input.
        target_hz: rate of the output.
    """

    def __init__(self, source_hz: int, target_hz: int) -> None:
        self._filter = _block_filter(source_hz, target_hz)
        self._received = 0
        self._produced = 0
        # Inputs that later outputs need, beginning with the first that the current block needs.
        self._window = np.zeros(self._filter.reach - 1)

    def push(self, samples: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
        """Append [S] samples; return the [R] output samples that are known so far."""
        self._received += len(samples)
        certain = self._received - self._filter.reach
        known = -(-certain * self._filter.outputs // self._filter.inputs)
        return self._produce(samples, max(known, self._produced))

    def finish(self) -> npt.NDArray[np.int16]:
        """Return the rest, as if silence followed the input.

        The total output is `round(received * target_hz / source_hz)` samples.
        """
        total = round(self._received * self._filter.outputs / self._filter.inputs)
        return self._produce(np.empty(0, np.int16), total)

    def _produce(self, samples: npt.NDArray[np.int16], end: int) -> npt.NDArray[np.int16]:
        window = np.concatenate((self._window, samples), dtype=np.float64)
        block, first = divmod(self._produced, self._filter.outputs)
        filtered = self._filter.apply(window, first + end - self._produced)[first:]
        self._window = window[(end // self._filter.outputs - block) * self._filter.inputs :].copy()
        self._produced = end
        return np.clip(np.rint(filtered), -32_768, 32_767).astype(np.int16)


@dataclass(frozen=True, slots=True)
class _BlockFilter:
    """The filters of one block of outputs as a matrix, because matrix products are fast.

    Attributes:
        outputs: outputs per block.
        inputs: distance between the starts of two blocks, in inputs.
        reach: inputs on either side that an output needs.
        weights: [inputs of a block, outputs] float64, integers.
    """

    outputs: int
    inputs: int
    reach: int
    weights: npt.NDArray[np.float64]

    def apply(self, window: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
        """The first `count` outputs of the input `window`, followed by silence."""
        seen = len(self.weights)
        blocks = max(1, math.ceil(count / self.outputs))
        padding = (blocks - 1) * self.inputs + seen - len(window)
        padded = np.pad(window, (0, max(padding, 0)))
        views = np.lib.stride_tricks.sliding_window_view(padded, seen)[:: self.inputs][:blocks]
        return (views @ self.weights).reshape(-1)[:count] / _COEFFICIENT_SCALE


@cache
def _block_filter(source_hz: int, target_hz: int) -> _BlockFilter:
    divisor = math.gcd(source_hz, target_hz)
    up, down = target_hz // divisor, source_hz // divisor
    filters = _polyphase_filters(up, down)
    taps = filters.shape[1]
    periods = math.ceil(_BLOCK_SAMPLES / up)
    weights = np.zeros((periods * up, periods * down + taps))
    for output, row in enumerate(weights):
        position, phase = divmod(output * down, up)
        row[position : position + taps] = filters[phase]
    return _BlockFilter(periods * up, periods * down, taps // 2, weights.T.copy())


def _polyphase_filters(up: int, down: int) -> npt.NDArray[np.float64]:
    """Filters [up, taps] of integers, one for each phase of an output between two inputs.

    A sinc under a Kaiser window whose stop band begins at half of the lower rate.

    Source: A. V. Oppenheim, R. W. Schafer, Discrete-Time Signal Processing, 3rd ed., section
    7.5.3 (Kaiser's formulas for the window's shape and length).
    """
    stretch = max(down / up, 1.0)  # inputs per sample of the lower rate
    half_width = REACH * stretch
    reach = math.ceil(half_width)
    transition = (_ATTENUATION_DB - 7.95) / (2.285 * 2 * REACH) / (2 * math.pi)
    cutoff = (0.5 - transition / 2) / stretch  # cycles per input
    shape = 0.1102 * (_ATTENUATION_DB - 8.7)
    phases = np.arange(up)[:, None] / up
    distance = phases - np.arange(1 - reach, reach + 1)  # [up, taps], in inputs
    inside = np.sqrt(np.clip(1 - (distance / half_width) ** 2, 0, None))
    taps = np.sinc(2 * cutoff * distance) * np.i0(shape * inside)
    taps[np.abs(distance) > half_width] = 0
    return np.rint(taps / taps.sum(axis=1, keepdims=True) * _COEFFICIENT_SCALE)
