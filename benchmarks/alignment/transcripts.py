"""Is a wrong transcript of a recording told, and a right one accepted?

    python -m benchmarks.alignment.transcripts

Recordings of people (`make recordings`) and flite's voices, clean and in white noise 10 dB below
the voice, are compared with what is said in them, with another English text of about as many
syllables, and with texts in other languages. The rule is that of `aligner.online.transcript_fit`.
"""

import random
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

import numpy as np
import typer

from benchmarks.common.report import provenance, publish
from testbed.agent_text import agent_sentences
from testbed.known_speech import Spoken, flite
from testbed.recordings import recordings, telephone_prompts
from testbed.short_sentences import SHORT_SENTENCES
from testbed.texts import TEXTS
from voiceagent_tts.aligner.online.transcript_fit import TranscriptFit, transcript_fit
from voiceagent_tts.text.transcript import syllables

FLITE = ("slt", "rms", "awb", "kal")
NOISES_DB = (None, 10.0)
_SAMPLED_LANGUAGES = 4


@dataclass(frozen=True, slots=True)
class Compared:
    """A recording and a text: which kind of text it is, the noise, and how well they fit."""

    kind: str
    noise_db: float | None
    fit: TranscriptFit


def compare(spoken: Spoken, random_: random.Random) -> list[Compared]:
    """Compare a recording with its own text, and with others."""
    others = random_.sample(sorted(TEXTS.keys() - {"en"}), _SAMPLED_LANGUAGES)
    texts = [("right", "en", spoken.text), ("another text", "en", _like(spoken, "en", random_))]
    texts += (("another language", code, _like(spoken, code, random_)) for code in others)
    compared: list[Compared] = []
    for noise_db in NOISES_DB:
        pcm = _noisy(spoken.pcm, noise_db)
        for kind, language, text in texts:
            if fit := transcript_fit(pcm, text, language):
                compared.append(Compared(kind, noise_db, fit))
    return compared


def _like(spoken: Spoken, language: str, random_: random.Random) -> str:
    """A text of about as many syllables as the recording has."""
    pool = [*TEXTS[language], *SHORT_SENTENCES.get(language, ())]
    random_.shuffle(pool)
    units = list(" ".join(pool)) if language in ("ja", "zh") else " ".join(pool).split()
    joint, wanted, text = ("" if language in ("ja", "zh") else " "), syllables(spoken.text), ""
    for unit in units:
        if syllables(text) >= wanted:
            break
        text = f"{text}{joint}{unit}" if text else unit
    return text


def _noisy(pcm: bytes, below_db: float | None) -> bytes:
    if below_db is None:
        return pcm
    samples = np.frombuffer(pcm, "<i2").astype(np.float64)
    noise = np.random.default_rng(1).normal(
        0.0, samples.std() * 10 ** (-below_db / 20), len(samples)
    )
    return (samples + noise).clip(-32_768, 32_767).astype("<i2").tobytes()


def main(
    sentences: Annotated[int, typer.Option(min=0, help="Sentences of each voice of flite.")] = 8,
    people: Annotated[int, typer.Option(min=0, help="Maximum number of recordings.")] = 1000,
) -> None:
    """Print how many right and wrong transcripts are called wrong."""
    origin, random_ = provenance(), random.Random(3)
    parts = ("development", "test")
    recorded = [one for part in parts for one in (*recordings(part), *telephone_prompts(part))]
    made = (flite(text, voice) for voice in FLITE for text in islice(agent_sentences(7), sentences))
    speech = [*recorded[:people], *(one for one in made if one is not None)]
    compared = [each for spoken in speech for each in compare(spoken, random_)]
    result: dict[str, dict[str, float]] = {}
    for kind in ("right", "another text", "another language"):
        for noise_db in NOISES_DB:
            chosen = [one for one in compared if (one.kind, one.noise_db) == (kind, noise_db)]
            told = sum(not one.fit.is_likely for one in chosen)
            costs = [one.fit.cost for one in chosen]
            name = f"{kind}, {'clean' if noise_db is None else f'noise {noise_db:g} dB below'}"
            result[name] = {
                "compared": len(chosen),
                "told": told,
                "lowest_cost": round(min(costs), 2),
                "highest_cost": round(max(costs), 2),
            }
            print(name, result[name])
    publish({"transcripts": result, "recordings": len(speech), **origin})


if __name__ == "__main__":
    typer.run(main)
