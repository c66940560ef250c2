"""Measure the online aligner: the words known at each barge-in, and its CPU time."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.alignment.playback import BargeIn, Playback
from testbed.known_speech import KnownSpeech
from voiceagent_tts.aligner.online.aligner import OnlineAligner
from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES, SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.text.words import split_words

_SESSIONS = 100
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
    played = [(spoken.words, method(spoken, rtf)) for spoken in contexts]
    misses = np.array(
        [
            barge_in.words - words_begun(truth, barge_in)
            for truth, playback in played
            for barge_in in playback.barge_ins
        ]
    )
    words = [word for _, playback in played for word in playback.words]
    errors = np.concatenate([errors_ms(playback.words, truth) for truth, playback in played])
    stamped = np.array([word.is_exact for word in words])
    return Cuts(
        _pct(misses == 0),
        _pct(abs(misses) <= 1),
        100 * sum(playback.late for _, playback in played) / len(words),
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


def cpu_per_audio_s(contexts: Sequence[KnownSpeech]) -> float:
    """CPU seconds per second of audio with 100 contexts, interleaved frame by frame.

    Includes the references, and the tentative words after every frame, as in a worker.
    """
    aligner = OnlineAligner()
    chosen = [contexts[index % len(contexts)] for index in range(_SESSIONS)]
    for spoken in {spoken.speaker: spoken for spoken in chosen}.values():
        for _ in _aligned(aligner, spoken):
            pass
    before_s = time.process_time()
    followed = [_aligned(aligner, spoken) for spoken in chosen]
    while followed:
        followed = [session for session in followed if next(session, None) is not None]
    audio_s = sum(spoken.samples for spoken in chosen) / SAMPLE_RATE_HZ
    return (time.process_time() - before_s) / audio_s


def _aligned(aligner: OnlineAligner, spoken: KnownSpeech) -> Iterator[bytes]:
    """Align one context; each step handles one frame."""
    session = aligner.open(spoken.language, spoken.speaker)
    session.append(split_words(spoken.text))
    size = FRAME_SAMPLES * BYTES_PER_SAMPLE
    for start in range(0, len(spoken.pcm), size):
        pcm = spoken.pcm[start : start + size]
        session.push(pcm)
        session.tentative()
        yield pcm
    session.finish()
