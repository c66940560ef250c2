"""Finds the watermark of known keys in audio, wherever the audio was cut.

The level of each cell is compared with what its neighbours predict, and the differences are
correlated with a key's signs at every shift. The score is in standard deviations of what unmarked
audio gives. The threshold does not depend on the kind of audio: for any audio that was made without
knowledge of the key, the score at one shift is a sum of terms with independent random signs, and
Hoeffding's inequality bounds how often it exceeds `t` by exp(-t² / 2).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from numpy import fft

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.provenance.keys import WatermarkKey
from voiceagent_tts.plugins.provenance.watermark import (
    BANDS,
    PERIOD_SAMPLES,
    SLOT_SAMPLES,
    SLOTS,
    bands_of_transform,
    signs,
)
from voiceagent_tts.plugins.recordings.file_reader import AudioLimits

MAX_FALSE_ALARMS = 1e-5
"""Bound on the probability that unmarked audio is reported as marked."""
MIN_AUDIO_S = 0.5
"""Shorter audio has too few cells for any verdict."""
FILE_LIMITS = AudioLimits(min_s=MIN_AUDIO_S, max_s=600.0, max_bytes=32 * 2**20, may_be_silent=True)
"""Limits of the files that are examined."""

_WINDOW = 2 * SLOT_SAMPLES
_PHASES = 4
"""Positions of the slots that are tried within one slot."""
_HOP = SLOT_SAMPLES // _PHASES
_BLOCK_SAMPLES = 2 * PERIOD_SAMPLES
_MAX_DEVIATION = 2.5
_NOISE_POWER = 30.0 * _WINDOW  # of samples in [-32768, 32767]: cells below it have no level

Levels = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Detection:
    """What was found in a file.

    Attributes:
        is_marked: whether the watermark of a known key was found.
        score: highest score, in standard deviations of what unmarked audio gives.
        threshold: score from which audio is reported as marked; it grows with the duration.
        marked_s: start and end of the marked parts; each may lie up to 8 s outside of the mark.
    """

    is_marked: bool
    key_id: str | None
    score: float
    threshold: float
    duration_s: float
    marked_s: tuple[tuple[float, float], ...]


def detect(samples: npt.NDArray[np.float32], keys: Sequence[WatermarkKey]) -> Detection:
    """Look for the watermarks of `keys`.

    Args:
        samples: [S] float32 in [-1, 1], mono, 24 kHz.
        keys: known keys.
    """
    folded = _fold_blocks(samples)
    shifts = _PHASES * SLOTS
    sections = _sections(len(folded))
    threshold = score_threshold(shifts * max(len(sections), 1) * max(len(keys), 1))
    best, best_key = 0.0, None
    marked: set[int] = set()
    for key in keys:
        spectrum = fft.fft(signs(key), axis=0)
        for section in sections:
            score = _score(np.sum([folded[block] for block in section], axis=0), spectrum)
            if score > best:
                best, best_key = score, key
            if score >= threshold and (len(section) <= 2 or not marked):
                marked.update(section)
    is_marked = best >= threshold
    return Detection(
        is_marked=is_marked,
        key_id=best_key.id if is_marked and best_key is not None else None,
        score=round(best, 2),
        threshold=round(threshold, 2),
        duration_s=round(len(samples) / SAMPLE_RATE_HZ, 3),
        marked_s=_spans(marked, len(samples)),
    )


def score_threshold(tests: int) -> float:
    """Return the score that unmarked audio exceeds in `tests` tests with MAX_FALSE_ALARMS at most.

    Source: W. Hoeffding, "Probability inequalities for sums of bounded random variables", Journal
    of the American Statistical Association 58 (1963), theorem 2, and the union bound.
    """
    return math.sqrt(2 * math.log(tests / MAX_FALSE_ALARMS))


def _sections(blocks: int) -> list[tuple[int, ...]]:
    """Parts of a file that are judged: every block, every two neighbours, and the whole."""
    numbers = range(blocks)
    sections = [*((number,) for number in numbers), *pairwise(numbers), tuple(numbers)]
    return list(dict.fromkeys(section for section in sections if section))


def _spans(marked: set[int], samples: int) -> tuple[tuple[float, float], ...]:
    """Join neighbouring blocks; returns their starts and ends in seconds."""
    spans: list[tuple[float, float]] = []
    for block in sorted(marked):
        start_s = block * _BLOCK_SAMPLES / SAMPLE_RATE_HZ
        end_s = min((block + 1) * _BLOCK_SAMPLES, samples) / SAMPLE_RATE_HZ
        if spans and spans[-1][1] >= start_s:
            start_s = spans.pop()[0]
        spans.append((round(start_s, 3), round(end_s, 3)))
    return tuple(spans)


def _score(folded: Levels, spectrum: npt.NDArray[np.complex128]) -> float:
    """Highest correlation with the signs, at any shift, in standard deviations.

    Args:
        folded: [_PHASES, SLOTS, BANDS].
        spectrum: transform of the signs over the slots.
    """
    norms = np.sqrt((folded**2).sum(axis=(1, 2)))
    products = fft.fft(folded, axis=1).conj() * spectrum
    correlations = fft.ifft(products.sum(axis=2), axis=1).real
    return float((correlations / np.maximum(norms, 1e-9)[:, None]).max())


def _fold_blocks(samples: npt.NDArray[np.float32]) -> list[Levels]:
    """Sums over the repetitions of the signs, [_PHASES, SLOTS, BANDS], of every block."""
    starts = range(0, len(samples), _BLOCK_SAMPLES)
    blocks = (samples[start : start + _BLOCK_SAMPLES + _WINDOW] for start in starts)
    return [
        _fold(_deviations(_levels(block)))
        for block in blocks
        if len(block) >= MIN_AUDIO_S * SAMPLE_RATE_HZ
    ]


def _levels(block: npt.NDArray[np.float32]) -> Levels:
    """Level of every cell, at a hop of a quarter slot: natural logarithm of power, [F, BANDS]."""
    window = np.hanning(_WINDOW) * 32_768.0
    frames = np.lib.stride_tricks.sliding_window_view(block, _WINDOW)[::_HOP] * window
    powers = np.abs(fft.rfft(frames)) ** 2
    band = bands_of_transform(_WINDOW)
    sums = np.stack([powers[:, band == number].sum(axis=1) for number in range(BANDS)], axis=1)
    return np.log(sums + _NOISE_POWER)


def _deviations(levels: Levels) -> Levels:
    """What the neighbours of each cell do not predict of its level, in deviations, clipped."""
    levels = levels - levels.mean(axis=0)
    neighbours = _neighbours(levels)
    weights, *_ = np.linalg.lstsq(neighbours, levels.reshape(-1))
    rest = levels - (neighbours @ weights).reshape(levels.shape)
    deviation = 1.4826 * float(np.median(np.abs(rest)))  # of a normal distribution
    return np.clip(rest / max(deviation, 1e-9), -_MAX_DEVIATION, _MAX_DEVIATION)


def _neighbours(levels: Levels) -> Levels:
    """Sums of the levels around each cell that stand in the same relation to it, [F * BANDS, 6]."""
    reach = 2 * _PHASES
    padded = np.pad(levels, ((reach, reach), (3, 3)), mode="edge")
    frames, bands = levels.shape

    def shifted(slots: int, by_bands: int) -> Levels:
        start = reach + slots * _PHASES
        return padded[start : start + frames, 3 + by_bands : 3 + by_bands + bands]

    def around(slots: int, by_bands: int) -> Levels:
        return shifted(slots, by_bands) + shifted(-slots, -by_bands)

    relations = [around(1, 0), around(2, 0), around(0, 1), around(0, 2), around(0, 3)]
    relations.append(around(1, 1) + around(1, -1))
    return np.stack([relation.reshape(-1) for relation in relations], axis=1)


def _fold(deviations: Levels) -> Levels:
    """Add up the repetitions of the signs, for every phase: [_PHASES, SLOTS, BANDS]."""
    period = _PHASES * SLOTS
    repetitions = -(-len(deviations) // period)
    padded = np.zeros((repetitions * period, BANDS))
    padded[: len(deviations)] = deviations
    folded = padded.reshape(repetitions, SLOTS, _PHASES, BANDS).sum(axis=0)
    return folded.transpose(1, 0, 2)
