"""What was recorded of the official training code, and with which settings; needs only NumPy."""

from functools import cache

import numpy as np

LEARNING_RATE = 1e-3
BATCH_ROWS = 2
FULL_STEPS = (1, 10)
"""Steps whose gradients were recorded in full."""
_PROJECTIONS = 8


def project(gradient: np.ndarray) -> np.ndarray:
    """Return the dot products of a gradient with fixed random signs: [8] float64.

    Gradients of all steps would be megabytes; two that differ have different projections.
    """
    return _signs(gradient.size) @ gradient.astype(np.float64).ravel()


@cache
def _signs(size: int) -> np.ndarray:
    return np.random.RandomState(size).choice((-1.0, 1.0), size=(_PROJECTIONS, size))
