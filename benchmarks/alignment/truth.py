"""Are the words of natural voices where Whisper hears them? Checks the truth of the benchmark.

    python -m benchmarks.alignment.truth --model FOLDER

The times of hibari and Kokoro follow from durations that their networks predict. Whisper's word
times are known to err by tens of milliseconds, always in one direction; how far is seen from
espeak, whose times are exact. What counts is that natural voices do not differ from espeak more
than a fifth of a second, the `OFF_MS` of the benchmark. Needs the package faster-whisper, and a
model for all languages; words that it writes otherwise are left out.
"""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import cycle
from typing import Annotated, Any

import numpy as np
import soxr
import typer

from benchmarks.alignment.conditions import KOKORO_ENGLISH, KOKORO_OTHERS, other_texts
from benchmarks.common.report import provenance, publish
from testbed.aligned_texts import ENGLISH
from testbed.hibari_driving import natural
from testbed.known_speech import Spoken, espeak
from testbed.kokoro import kokoro_voices
from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.core import SAMPLE_RATE_HZ

_WHISPER_RATE_HZ = 16_000


def groups(sentences: int) -> dict[str, list[Spoken]]:
    """Speech by its kind, `sentences` of each; errors as for `kokoro_voices`."""
    texts = ENGLISH[:sentences]
    voices = kokoro_voices()
    found = {
        "espeak, exact times": [espeak(text, "en", "f2") for text in texts],
        "hibari": [natural(text) for text in texts],
        "Kokoro, en": _by_turns(KOKORO_ENGLISH, texts),
    }
    for language, names in KOKORO_OTHERS.items():
        chosen = other_texts(language)[:sentences]
        found[f"espeak, {language}"] = [espeak(text, language, "f2") for text in chosen]
        found[f"Kokoro, {language}"] = [
            natural(text, voice=voices[name])
            for text, name in zip(chosen, cycle(names), strict=False)
        ]
    return found


def _by_turns(names: Sequence[str], texts: Sequence[str]) -> list[Spoken]:
    voices = kokoro_voices()
    return [
        natural(text, voice=voices[name]) for text, name in zip(texts, cycle(names), strict=False)
    ]


def differences_ms(spoken: Spoken, heard: Sequence[tuple[str, float]]) -> Iterator[float]:
    """How much later each word begins for the listener than in the truth.

    Args:
        spoken: speech with its word times.
        heard: the words that are heard, and when each begins in seconds.
    """
    said = [_plain(word.word.text) for word in spoken.words]
    matcher = SequenceMatcher(None, said, [_plain(text) for text, _ in heard], autojunk=False)
    for match in matcher.get_matching_blocks():
        for place in range(match.size):
            start_s = spoken.words[match.a + place].start_sample / SAMPLE_RATE_HZ
            yield 1000 * (heard[match.b + place][1] - start_s)


def _plain(word: str) -> str:
    return "".join(filter(str.isalnum, word.casefold()))


def figures_of(differences: Sequence[float]) -> dict[str, float]:
    """The median, and how far 90 % of the words are from it."""
    values = np.array(differences)
    spread = np.percentile(np.abs(values - np.median(values)), 90)
    off = 100 * float((np.abs(values - np.median(values)) > 200).mean())
    figures = {"median_ms": float(np.median(values)), "p90_from_it_ms": float(spread)}
    return {"words": len(values), **{k: round(v, 1) for k, v in figures.items()},
            "further_than_200_ms_pct": round(off, 1)}  # fmt: skip


def main(
    model: Annotated[str, typer.Option(help="Folder of a model of faster-whisper.")],
    sentences: Annotated[int, typer.Option(min=1, help="Sentences of each kind.")] = 8,
) -> None:
    """Print how much later Whisper hears the words of each kind of speech."""
    from faster_whisper import WhisperModel  # pyright: ignore[reportMissingImports]

    origin, listener = provenance(), WhisperModel(model, device="cpu", compute_type="int8")
    result: dict[str, Any] = {}
    for name, contexts in groups(sentences).items():
        differences = [
            each for spoken in contexts for each in differences_ms(spoken, _heard(listener, spoken))
        ]
        result[name] = figures_of(differences)
        print(name, result[name], flush=True)
    publish({"truth": result, **origin})


def _heard(listener: Any, spoken: Spoken) -> list[tuple[str, float]]:
    audio = soxr.resample(pcm_to_float(spoken.pcm), SAMPLE_RATE_HZ, _WHISPER_RATE_HZ)
    segments, _ = listener.transcribe(
        audio, language=spoken.language, beam_size=1, word_timestamps=True
    )
    return [(word.word, word.start) for segment in segments for word in segment.words]


if __name__ == "__main__":
    typer.run(main)
