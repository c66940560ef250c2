"""The speech that the aligner's network learns from, and that it learns."""

import random
from itertools import groupby

import numpy as np
import pytest
import torch

from benchmarks.alignment.speech import ESPEAK_VOICES, HELD_OUT
from tools.phone_training.labelled_speech import (
    FLITE_VOICES,
    HELD_OUT_VARIANTS,
    EspeakSpeakers,
    FliteSpeakers,
    LabelledSpeech,
)
from tools.phone_training.network import Corpus, Utterance, save, train, typical_spectrum
from voiceagent_tts.aligner.online.features import BANDS, HOP_SAMPLES, frames_of
from voiceagent_tts.aligner.online.phone_model import phone_model
from voiceagent_tts.aligner.online.phones import PHONES, SILENCE, VOWELS

SENTENCE = "See my boat, it shows the way."


def spelled(speech: LabelledSpeech) -> str:
    """The phones of the speech, each once, without silence."""
    phones = (PHONES[label] for label, _ in groupby(speech.labels.tolist()))
    return "".join(phone for phone in phones if phone != SILENCE)


@pytest.fixture
def espeak() -> EspeakSpeakers:
    """Random voices of espeak."""
    return EspeakSpeakers(random.Random(1))


@pytest.fixture
def clean(espeak: EspeakSpeakers) -> LabelledSpeech:
    """One sentence in English."""
    speech = espeak.speak(SENTENCE, "en")
    assert speech is not None
    return speech


def test_espeak_and_flite_say_the_same_phones(clean: LabelledSpeech) -> None:
    """Both spell the sentence alike but for weak vowels, though each has phones of its own."""
    strong = [
        "".join(phone for phone in spelled(speech) if phone not in "əIɾtʌ")
        for speech in (clean, FliteSpeakers(random.Random(1)).speak(SENTENCE))
    ]
    assert strong[0] == strong[1]
    assert strong[0].startswith("simæ")


def test_no_held_out_voice_is_used() -> None:
    """What the benchmark of the aligner reports, the network has not heard."""
    assert {name for name, _ in ESPEAK_VOICES} == set(HELD_OUT_VARIANTS)
    assert not set(HELD_OUT.voices) & set(FLITE_VOICES)


def test_labels_lie_where_the_sound_is(clean: LabelledSpeech) -> None:
    """Vowels are louder than what is labelled as silence, by at least 10 dB."""
    frames = clean.samples[: len(clean.labels) * HOP_SAMPLES].reshape(-1, HOP_SAMPLES)
    energies = np.square(frames.astype(np.float64)).mean(axis=1) + 1
    is_vowel = np.isin(clean.labels, [PHONES.index(phone) for phone in VOWELS])
    assert energies[is_vowel].mean() > 10 * energies[clean.labels == 0].mean()


def test_a_network_learns_a_sentence_and_is_loaded(
    clean: LabelledSpeech, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 30 passes over one sentence most of its phones are right, also once it is loaded."""
    torch.manual_seed(1)
    utterance = Utterance.of(clean)
    corpus = Corpus([utterance] * 4, np.random.default_rng(1))
    folder = tmp_path_factory.mktemp("network")
    save(train(corpus, 30), corpus, typical_spectrum([clean]), folder / "phones.npz")
    monkeypatch.setattr("voiceagent_tts.aligner.online.phone_model.files", lambda _: folder)
    model = phone_model.__wrapped__()
    assert model.typical_spectrum.shape == (BANDS,)
    samples = clean.samples.astype("<i2").tobytes()

    frames = frames_of(samples)
    costs = model.costs(frames.spectra, frames.own_spectra[frames.log_energies > -8].mean(axis=0))
    length = min(len(costs), len(clean.labels))
    assert (costs.argmin(axis=1)[:length] == clean.labels[:length]).mean() > 0.6
