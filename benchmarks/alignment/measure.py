"""Measure the online aligner: the errors of its final times, and its CPU time."""

import time
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from benchmarks.alignment.cuts import errors_ms
from testbed.known_speech import KnownSpeech
from voiceagent_tts.aligner.online.aligner import OnlineAligner
from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES, SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.text.words import split_words

_SESSIONS = 100


def accuracy(contexts: Iterable[KnownSpeech]) -> dict[str, float]:
    """Errors of the online aligner's final word starts."""
    aligner = OnlineAligner()
    errors = np.concatenate(
        [errors_ms(_aligned(aligner, spoken), spoken.words) for spoken in contexts]
    )
    figures = {"words": len(errors), "mae_ms": float(errors.mean())}
    figures |= {f"within_{ms}_ms_pct": 100 * float((errors <= ms).mean()) for ms in (50, 100, 200)}
    return {name: round(figure, 1) for name, figure in figures.items()}


def _aligned(aligner: OnlineAligner, spoken: KnownSpeech) -> list[WordTimestamp]:
    session = aligner.open(spoken.language, spoken.speaker)
    session.append(split_words(spoken.text))
    words: list[WordTimestamp] = []
    for pcm in _frames(spoken):
        words += session.push(pcm)
    return words + list(session.finish())


def _frames(spoken: KnownSpeech) -> Iterable[bytes]:
    size = FRAME_SAMPLES * BYTES_PER_SAMPLE
    return (spoken.pcm[start : start + size] for start in range(0, len(spoken.pcm), size))


def cpu_per_audio_s(contexts: Sequence[KnownSpeech]) -> float:
    """CPU seconds per second of audio with 100 contexts, interleaved frame by frame.

    Includes the references, and the tentative words after every frame, as in a worker.
    """
    aligner = OnlineAligner()
    chosen = [contexts[index % len(contexts)] for index in range(_SESSIONS)]
    for spoken in {spoken.speaker: spoken for spoken in chosen}.values():
        _aligned(aligner, spoken)
    before_s = time.process_time()
    followed = [_followed(aligner, spoken) for spoken in chosen]
    while followed:
        followed = [session for session in followed if next(session, None) is not None]
    audio_s = sum(spoken.samples for spoken in chosen) / SAMPLE_RATE_HZ
    return (time.process_time() - before_s) / audio_s


def _followed(aligner: OnlineAligner, spoken: KnownSpeech) -> Iterator[bytes]:
    """Align one context; each step handles one frame."""
    session = aligner.open(spoken.language, spoken.speaker)
    session.append(split_words(spoken.text))
    for pcm in _frames(spoken):
        session.push(pcm)
        session.tentative()
        yield pcm
    session.finish()
