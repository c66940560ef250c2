"""`python -m tools.phone_training`: train the network and write `phones.npz`, in ten minutes."""

import random
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.progress import track

from tools.phone_training.disturbances import Disturber
from tools.phone_training.labelled_speech import (
    EspeakSpeakers,
    FliteSpeakers,
    LabelledSpeech,
    Samples,
    speak_with_festival,
)
from tools.phone_training.network import Corpus, Utterance, save, train, typical_spectrum
from tools.phone_training.texts import sentences

_SEED = 1
_FRAMES_PER_MINUTE = 6_000
_MINUTES = {"flite": 80, "festival": 50, "en": 50, "other": 9}
"""Clean speech from each source: English from flite, festival and espeak, and each other language
from espeak."""
_FESTIVAL_SENTENCES = 700
_VERSIONS = 4
"""How often each sentence is disturbed anew."""
_BABBLERS = 100

_voices: list[Samples] = []


def main(
    out: Annotated[Path, typer.Argument(help="File to write.")] = Path("out/phones.npz"),
    epochs: Annotated[int, typer.Option(help="Passes over all versions.")] = 3,
    share: Annotated[float, typer.Option(help="Share of the speech; 0.02 for a trial.")] = 1.0,
) -> None:
    """Train the network that names the phones of speech, and write its weights."""
    torch.manual_seed(_SEED)
    clean = list(_clean_speech(share))
    print(f"{sum(len(speech.labels) for speech in clean) / _FRAMES_PER_MINUTE:.0f} min of speech")
    step = max(1, len(clean) // _BABBLERS)
    _voices.extend(speech.samples for speech in clean[::step])
    jobs = clean * _VERSIONS
    with get_context("fork").Pool() as pool:  # forked, so that every process has the voices
        making = pool.imap(_disturbed, enumerate(jobs), chunksize=16)
        utterances = list(track(making, "disturbing", len(jobs)))
    corpus = Corpus(utterances, np.random.default_rng(_SEED))
    network = train(corpus, epochs)
    out.parent.mkdir(parents=True, exist_ok=True)
    save(network, corpus, typical_spectrum(clean[::40]), out)
    print(f"wrote {out}")


def _clean_speech(share: float) -> Iterator[LabelledSpeech]:
    rng = random.Random(_SEED)
    texts = sentences(rng)
    english = cycle(texts.pop("en"))
    flite, espeak = FliteSpeakers(rng), EspeakSpeakers(rng)
    yield from _up_to(share * _MINUTES["flite"], lambda: flite.speak(next(english)))
    yield from speak_with_festival(islice(english, round(share * _FESTIVAL_SENTENCES)))
    yield from _up_to(share * _MINUTES["en"], lambda: espeak.speak(next(english), "en"))
    for language, written in texts.items():
        sentence = cycle(written)
        yield from _up_to(
            share * _MINUTES["other"],
            lambda sentence=sentence, language=language: espeak.speak(next(sentence), language),
        )


def _up_to(minutes: float, speak: Callable[[], LabelledSpeech | None]) -> Iterator[LabelledSpeech]:
    """Yield sentences until they last `minutes`."""
    frames = 0
    while frames < minutes * _FRAMES_PER_MINUTE:
        speech = speak()
        if speech is not None and len(speech.labels) > 50:
            frames += len(speech.labels)
            yield speech


def _disturbed(job: tuple[int, LabelledSpeech]) -> Utterance:
    number, clean = job
    return Utterance.of(Disturber(np.random.default_rng((_SEED, number)), _voices).disturb(clean))


if __name__ == "__main__":
    typer.run(main)
