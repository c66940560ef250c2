"""Measures the judge before it judges: against voices that report when each word begins.

The embedded voice speaks the texts of the benchmarks in four variants and paces, which the judge's
own reference is not, and reports its words' native times. The speech is cut off at random moments,
as by a user.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.plugins.bench.bargein.heard import heard_in
from voiceagent_tts.plugins.bench.bargein.judge import Judge, Recording
from voiceagent_tts.plugins.bench.bargein.known_speech import KnownSpeech, espeak
from voiceagent_tts.plugins.bench.bargein.replies import EARLIEST_CUT_S, LATEST_CUT_S
from voiceagent_tts.plugins.bench.texts import choose_texts

_SPEAKERS = (("f2", 0.9), ("m2", 1.0), ("f4", 1.1), ("m7", 1.2))
"""Voices and their paces; none is the reference, and none was used to tune the aligner."""
_KINDS = ("short", "menu", "blurb", "numbers")
_CUTS = 6
"""Cuts of each text."""


@dataclass(frozen=True, slots=True)
class JudgeError:
    """How well the judge does.

    Attributes:
        language: language code, or another name of what was spoken.
        errors_ms: absolute error of the start of each word that was heard.
        differences: words judged as heard minus words heard, of each cut.
    """

    language: str
    errors_ms: tuple[float, ...]
    differences: tuple[int, ...]

    @property
    def figures(self) -> dict[str, Any]:
        """The figures, by their names in documents."""
        p50, p95 = np.percentile(self.errors_ms or [np.nan], (50, 95)).tolist()
        offs = np.abs(self.differences)
        return {
            "language": self.language,
            "words": len(self.errors_ms),
            "error_p50_ms": round(p50, 1),
            "error_p95_ms": round(p95, 1),
            "cuts": len(offs),
            "exact_pct": round(100 * float(np.mean(offs == 0)), 1),
            "within_one_pct": round(100 * float(np.mean(offs <= 1)), 1),
        }


def measure_judge(
    languages: Sequence[str], seed: int, on_progress: Callable[[int], object] = lambda _: None
) -> list[JudgeError]:
    """Measure a new judge in each language.

    Args:
        languages: language codes of the committed texts.
        seed: seed of the cuts.
        on_progress: called with the number of languages that are done.

    Raises:
        InvalidRequestError: there are no texts in a language.
        EngineError: the embedded voice cannot be loaded.
    """
    errors: list[JudgeError] = []
    for count, language in enumerate(languages, start=1):
        errors.append(_in_language(language, random.Random(f"{seed} {language}")))
        on_progress(count)
    return errors


def _in_language(language: str, rng: random.Random) -> JudgeError:
    texts = choose_texts([language], _KINDS)
    spoken = [
        espeak(text.text, language, *_SPEAKERS[index % len(_SPEAKERS)])
        for index, text in enumerate(texts)
    ]
    return error_on(language, spoken, rng)


def error_on(name: str, spoken: Sequence[KnownSpeech], rng: random.Random) -> JudgeError:
    """Measure a new judge on speech with known word times.

    Args:
        name: name of the speech.
        spoken: the speech.
        rng: source of the cuts.
    """
    judge = Judge()
    judge.learn(_recording(each, each.samples) for each in spoken)
    errors_ms: list[float] = []
    differences: list[int] = []
    for each in spoken:
        for samples in _cuts(each, rng):
            judged = judge.word_times(_recording(each, samples))
            true = heard_in(each.words, samples).heard
            errors_ms += _errors_ms(each, judged[: len(true)])
            differences.append(len(heard_in(judged, samples).heard) - len(true))
    return JudgeError(name, tuple(errors_ms), tuple(differences))


def _recording(spoken: KnownSpeech, samples: int) -> Recording:
    pcm = spoken.pcm[: samples * BYTES_PER_SAMPLE]
    return Recording(spoken.speaker, spoken.language, spoken.text, pcm)


def _cuts(spoken: KnownSpeech, rng: random.Random) -> Iterator[int]:
    """Moments in samples, where the times of the words on both sides are the voice's own."""
    latest = min(spoken.samples, int(LATEST_CUT_S * SAMPLE_RATE_HZ))
    for _ in range(_CUTS):
        samples = int(rng.uniform(EARLIEST_CUT_S * SAMPLE_RATE_HZ, latest))
        heard = len(heard_in(spoken.words, samples).heard)
        if all(word.is_exact for word in spoken.words[max(0, heard - 1) : heard + 1]):
            yield samples


def _errors_ms(spoken: KnownSpeech, judged: Sequence[WordTimestamp]) -> Iterator[float]:
    """Errors of the words whose native times are exact."""
    for ours, true in zip(judged, spoken.words, strict=False):
        if true.is_exact:
            yield 1000 * abs(ours.start_sample - true.start_sample) / SAMPLE_RATE_HZ
