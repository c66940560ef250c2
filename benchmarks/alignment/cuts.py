"""Compare the words that a listener has heard with those that were known at each barge-in."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.alignment.playback import BargeIn, Playback
from testbed.known_speech import KnownSpeech
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp

OFF_MS = 200
"""A word that was sent as exact may not be further off."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """Results of the barge-ins into several contexts.

    Attributes:
        exact_pct: percentage of barge-ins with exactly the words heard.
        within_one_pct: percentage of barge-ins with at most one word more or fewer.
        late_pct: percentage of words that were sent late.
        mae_ms: mean absolute error of the sent word starts.
        stamped_exact_pct: percentage of words that were sent as exact.
        stamped_off_pct: percentage of those whose start is more than 200 ms off.
    """

    exact_pct: float
    within_one_pct: float
    late_pct: float
    mae_ms: float
    stamped_exact_pct: float
    stamped_off_pct: float


Method = Callable[[KnownSpeech, float], Playback]
"""Plays a context at a real-time factor with one source of word times."""


def cuts_of(method: Method, contexts: Sequence[KnownSpeech], rtf: float) -> Cuts:
    """Play every context and compare the words heard with the truth."""
    playbacks = [method(spoken, rtf) for spoken in contexts]
    misses = np.array(
        [
            barge_in.words - words_begun(spoken.words, barge_in)
            for spoken, playback in zip(contexts, playbacks, strict=True)
            for barge_in in playback.barge_ins
        ]
    )
    words = [word for playback in playbacks for word in playback.words]
    errors = np.concatenate(
        [
            errors_ms(playback.words, spoken.words)
            for spoken, playback in zip(contexts, playbacks, strict=True)
        ]
    )
    stamped = np.array([word.is_exact for word in words])
    return Cuts(
        _pct(misses == 0),
        _pct(abs(misses) <= 1),
        100 * sum(playback.late for playback in playbacks) / len(words),
        float(errors.mean()),
        _pct(stamped),
        _pct(errors[stamped] > OFF_MS) if stamped.any() else 0.0,
    )


def errors_ms(
    words: Sequence[WordTimestamp], truth: Sequence[WordTimestamp]
) -> npt.NDArray[np.float64]:
    """Absolute error of each word's start in milliseconds."""
    pairs = zip(words, truth, strict=True)
    samples = [abs(ours.start_sample - true.start_sample) for ours, true in pairs]
    return np.array(samples) * 1000 / SAMPLE_RATE_HZ


def words_begun(words: Iterable[WordTimestamp], barge_in: BargeIn) -> int:
    """Number of words that have begun when the listener interrupts."""
    return sum(word.start_sample <= barge_in.played_samples for word in words)


def _pct(claims: npt.NDArray[np.bool_]) -> float:
    return 100 * float(claims.mean())
