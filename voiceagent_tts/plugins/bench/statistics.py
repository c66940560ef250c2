"""Percentiles, means and shares with their intervals.

Intervals are percentile bootstrap intervals (Efron 1979): the values are drawn again with
replacement many times, and the middle 95 % of the figures is the interval. Utterances are taken as
independent of each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RANKS = (50, 90, 95, 99)
_DRAWS = 1_000
_MIDDLE = (2.5, 97.5)
_Z = 1.96
"""Standard deviations of a normal distribution that hold 95 % of it."""
_MOST_DRAWN = 4_000
"""Values per draw; from more, the interval is that of a random part, scaled to their number."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure, and the range of values that would not surprise in another run."""

    value: float
    low: float
    high: float


def percentiles(values: Sequence[float], seed: int = 0) -> dict[int, Interval]:
    """Percentiles p50, p90, p95 and p99 by rank, linearly interpolated; empty without values."""
    if not values:
        return {}
    figures = np.percentile(values, RANKS)
    drawn = np.percentile(_drawn(values, min(len(values), _MOST_DRAWN), seed), RANKS, axis=1)
    lows, highs = np.percentile(drawn, _MIDDLE, axis=1)
    scale = max(1.0, len(values) / _MOST_DRAWN) ** -0.5
    return {
        rank: Interval(value, value - (value - low) * scale, value + (high - value) * scale)
        for rank, value, low, high in zip(
            RANKS, figures.tolist(), lows.tolist(), highs.tolist(), strict=True
        )
    }


def share(hits: int, count: int) -> Interval:
    """`hits` of `count` as a share from 0 to 1, with its 95 % score interval (Wilson 1927).

    Without a count, nothing is known: 0 to 1 around 0.
    """
    if not count:
        return Interval(0.0, 0.0, 1.0)
    value, z2 = hits / count, _Z**2
    middle = (value + z2 / (2 * count)) / (1 + z2 / count)
    reach = _Z * math.sqrt(value * (1 - value) / count + z2 / (4 * count**2)) / (1 + z2 / count)
    return Interval(value, max(0.0, middle - reach), min(1.0, middle + reach))


def mean(values: Sequence[float]) -> Interval:
    """The mean with its interval; both ends are the value where there is only one.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("expected values for a mean, got none")
    drawn = _drawn(values, len(values), 0).mean(axis=1)
    return Interval(float(np.mean(values)), *np.percentile(drawn, _MIDDLE).tolist())


def _drawn(values: Sequence[float], size: int, seed: int) -> npt.NDArray[np.float64]:
    """Values drawn with replacement: [draws, size]."""
    return np.random.default_rng(seed).choice(np.asarray(values, np.float64), (_DRAWS, size))
