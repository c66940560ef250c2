"""Measures the judge of `bench bargein`: against voices that report when each word begins.

The embedded voice speaks the texts of the benchmarks in four variants and paces, which the judge's
own reference is not, and reports its words' native times. The speech is cut off at random moments,
as by a user. `python -m benchmarks.bargein.judge_error` prints the figures.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.plugins.bench.bargein.heard import heard_in
from voiceagent_tts.plugins.bench.bargein.judge import Judge, Recording
from voiceagent_tts.plugins.bench.bargein.known_speech import KnownSpeech, espeak
from voiceagent_tts.plugins.bench.bargein.replies import EARLIEST_CUT_S, LATEST_CUT_S
from voiceagent_tts.plugins.bench.bargein.report import cells
from voiceagent_tts.plugins.bench.texts import choose_texts

_COLUMNS = {
    "language": "language",
    "words": "words",
    "error_p50_ms": "word times p50, ms",
    "error_p95_ms": "p95, ms",
    "cuts": "cuts",
    "exact_pct": "exact %",
    "within_one_pct": "within one %",
}
"""Figures, and their headings."""
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


def measure_judge(languages: Sequence[str], seed: int) -> list[JudgeError]:
    """Measure a new judge in each language.

    Args:
        languages: language codes of the committed texts.
        seed: seed of the cuts.

    Raises:
        InvalidRequestError: there are no texts in a language.
        EngineError: the embedded voice cannot be loaded.
    """
    return [_in_language(each, random.Random(f"{seed} {each}")) for each in languages]


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


def main(languages: str = "en,de,fr,es,it", seed: int = 1) -> None:
    """Print the judge's own error, against native word times."""
    table = Table(*_COLUMNS.values(), box=None)
    for error in measure_judge(languages.split(","), seed):
        table.add_row(*cells(error.figures, _COLUMNS))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
