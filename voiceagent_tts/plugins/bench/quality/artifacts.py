"""Finds what speech models add or lose when they fail: noise, silence, repetition, wrong lengths.

The sound alone decides, with the length of its text; no recogniser is needed. Each finding has a
place. `tests/plugins/bench/quality/test_artifacts.py` plants each defect in synthetic speech, and
counts false alarms on speech without one; docs/benchmarking.md has the rates.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voiceagent_tts.plugins.bench.quality.clips import Clip
from voiceagent_tts.plugins.bench.quality.spectra import (
    HOP_S,
    Values,
    flatness,
    levels_db,
    log_mel,
    powers,
)

KINDS = ("noise", "silence", "repetition", "too long", "too short")
_AUDIBLE_DB = -50.0
_LOUD_BELOW_PEAK_DB = 20.0
_SPEECH_BELOW_PEAK_DB = 30.0
_FLAT = 0.4
"""Between speech, whose fricatives reach it for 60 ms, and white noise, which stays above 0.5."""
_NOISE_S = 0.09
_LONGEST_PAUSE_S = 1.2
_REPEATED_S = 0.4
_LEAST_LAG_S = 0.25
_ALIKE = 0.9
"""Cosine of spectra without their mean, over `_REPEATED_S`."""
_VOICED_SHARE = 0.7
_S_PER_LETTER = 0.075
_S_PER_CHARACTER = 0.22
"""Of scripts in which a character is a syllable."""
_LETTERS_PER_DIGIT = 4
_SLOWEST, _FASTEST = 2.5, 0.3
_ALLOWED_S = 1.0
_WIDE = re.compile(r"[぀-ヿ㐀-鿿가-힯]")

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect.

    Attributes:
        kind: one of `KINDS`.
        start_s: where it begins.
        length_s: how long it lasts.
    """

    kind: str
    start_s: float
    length_s: float


def find_artifacts(clip: Clip) -> list[Finding]:
    """The defects of a clip, at most one of each kind: the longest."""
    power, level_db = powers(clip.samples), levels_db(clip.samples)
    return [*_noise(power, level_db), *_silence(level_db), *_repetition(clip, power, level_db),
            *_length(clip, level_db)]  # fmt: skip


def expected_s(text: str) -> float:
    """How long a text takes at a usual pace: from its letters, digits and characters."""
    wide = len(_WIDE.findall(text))
    digits = sum(character.isdigit() for character in text)
    letters = sum(character.isalpha() for character in text) - wide
    return wide * _S_PER_CHARACTER + (letters + digits * _LETTERS_PER_DIGIT) * _S_PER_LETTER


def _noise(power: Values, level_db: Values) -> Iterator[Finding]:
    loud = level_db > max(_peak_db(level_db) - _LOUD_BELOW_PEAK_DB, _AUDIBLE_DB)
    start, length = longest_run((flatness(power) > _FLAT) & loud)
    if length * HOP_S >= _NOISE_S:
        yield Finding("noise", start * HOP_S, length * HOP_S)


def _silence(level_db: Values) -> Iterator[Finding]:
    is_sound = level_db > max(_peak_db(level_db) - 2 * _LOUD_BELOW_PEAK_DB, _AUDIBLE_DB)
    start, length = longest_run(~is_sound)
    if not is_sound.any() or length * HOP_S >= _LONGEST_PAUSE_S:
        yield Finding("silence", start * HOP_S, length * HOP_S)


def _repetition(clip: Clip, power: Values, level_db: Values) -> Iterator[Finding]:
    """The best match of a stretch of speech with a later one, where the text repeats no word."""
    window, least = round(_REPEATED_S / HOP_S), round(_LEAST_LAG_S / HOP_S)
    is_speech = level_db > max(_peak_db(level_db) - _SPEECH_BELOW_PEAK_DB, _AUDIBLE_DB)
    if _repeats_itself(clip.item.text) or is_speech.sum() < 2 * window:
        return
    bands = log_mel(power)
    directions = bands - bands[is_speech].mean(axis=0)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True) + 1e-9
    alike = directions @ directions.T
    best = (0.0, 0, 0)
    for lag in range(least, len(bands) - window):
        both = is_speech[:-lag] & is_speech[lag:]
        scores = _moving_mean(np.diagonal(alike, lag) * both, window)
        scores[_moving_mean(both.astype(float), window) < _VOICED_SHARE] = 0
        place = int(scores.argmax())
        best = max(best, (float(scores[place]), place, lag))
    score, place, lag = best
    if score >= _ALIKE:
        yield Finding("repetition", (place + lag) * HOP_S, _REPEATED_S)


def _length(clip: Clip, level_db: Values) -> Iterator[Finding]:
    """Sound from the first audible frame to the last, against the text's usual length."""
    audible = np.flatnonzero(level_db > _AUDIBLE_DB)
    usual_s = expected_s(clip.item.text)
    if not len(audible) or not usual_s:
        return
    start_s, length_s = audible[0] * HOP_S, (audible[-1] - audible[0] + 1) * HOP_S
    if length_s > usual_s * _SLOWEST + _ALLOWED_S:
        yield Finding("too long", start_s, length_s)
    if length_s < usual_s * _FASTEST:
        yield Finding("too short", start_s, length_s)


def _repeats_itself(text: str) -> bool:
    """Whether a text has a word of four letters, or two characters of a wide script, twice."""
    words = [word.casefold() for word in re.findall(r"[^\W_]+", text) if len(word) > 3]
    wide = ["".join(pair) for pair in zip(text, text[1:], strict=False) if _WIDE.match(pair[0])]
    return len(set(words)) < len(words) or len(set(wide)) < len(wide)


def longest_run(mask: Mask) -> tuple[int, int]:
    """(start, length) of the longest run of true values; the length is 0 if there is none."""
    lengths = ((start, end - start) for start, end in runs(mask))
    return max(lengths, key=lambda run: run[1], default=(0, 0))


def runs(mask: Mask) -> list[tuple[int, int]]:
    """(first, after the last) of every run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _moving_mean(values: Values, window: int) -> Values:
    sums = np.cumsum(np.concatenate(([0.0], values)))
    return (sums[window:] - sums[:-window]) / window


def _peak_db(level_db: Values) -> float:
    return float(np.percentile(level_db, 95))
