"""The speech that the aligner's network learns from, and that it learns."""

import random
from collections.abc import Iterator
from itertools import groupby

import numpy as np
import pytest
import torch

from benchmarks.alignment.speech import ESPEAK_VOICES, HELD_OUT
from tools.phone_training.disturbances import Disturber
from tools.phone_training.labelled_speech import (
    FLITE_VOICES,
    HELD_OUT_VARIANTS,
    EspeakSpeakers,
    FliteSpeakers,
    LabelledSpeech,
)
from tools.phone_training.network import Corpus, Utterance, save, train, typical_spectrum
from voiceagent_tts.aligner.online.features import BANDS, FRAMES_SEEN, HOP_SAMPLES, frames_of
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


@pytest.mark.parametrize("language", ["de", "es", "fr", "it", "ja", "ko", "pt-br", "ru", "zh"])
def test_every_language_has_phones(espeak: EspeakSpeakers, language: str) -> None:
    """Most frames of speech in any language are phones."""
    texts = {"zh": "你好，我们今天去看电影。", "ja": "今日はいい天気ですね。", "ko": "안녕하세요."}
    speech = espeak.speak(texts.get(language, "Problema, kommen, animal, dama."), language)
    assert speech is not None
    assert (speech.labels > 0).mean() > 0.5


def test_a_text_without_sound_is_no_speech(espeak: EspeakSpeakers) -> None:
    """Punctuation alone teaches nothing."""
    assert espeak.speak("...", "en") is None


@pytest.mark.parametrize("seed", range(20))
def test_a_disturbance_keeps_the_phones(clean: LabelledSpeech, seed: int) -> None:
    """Whatever is drawn, the phones stay in order, and the labels last as long as the sound."""
    disturber = Disturber(np.random.default_rng(seed), [clean.samples])
    disturbed = disturber.disturb(clean)
    assert abs(len(disturbed.samples) - len(disturbed.labels) * HOP_SAMPLES) < 2 * HOP_SAMPLES
    assert np.abs(disturbed.samples).max() <= 32_768
    said, wanted = spelled(disturbed), spelled(clean)
    assert len(said) >= 0.9 * len(wanted)
    left = iter(wanted)
    # A pause may divide a phone in two, and a faster pace may lose a short one.
    assert all(phone == before or phone in left for before, phone in pairs(said))


def pairs(phones: str) -> Iterator[tuple[str, str]]:
    """Each phone with the one before it."""
    return zip(" " + phones, phones, strict=False)


def test_disturbances_differ_by_seed_alone(clean: LabelledSpeech) -> None:
    """A seed gives the same samples again, another seed others."""
    first, again, other = (
        Disturber(np.random.default_rng(seed), [clean.samples]).disturb(clean).samples
        for seed in (3, 3, 4)
    )
    assert np.array_equal(first, again)
    assert len(first) != len(other) or not np.array_equal(first, other)


def test_batches_have_every_frame_once_with_its_neighbours(clean: LabelledSpeech) -> None:
    """Two utterances give as many rows as they have frames, and as many of each label."""
    utterance = Utterance.of(clean)
    corpus = Corpus([utterance, utterance], np.random.default_rng(1))
    batches = list(corpus.batches())
    assert len(corpus) == sum(len(labels) for _, labels in batches) == 2 * len(utterance.labels)
    assert all(spectra.shape[1] == FRAMES_SEEN * BANDS for spectra, _ in batches)
    counts = np.bincount(torch.cat([labels for _, labels in batches]).numpy(), minlength=36)
    assert np.array_equal(counts, 2 * np.bincount(utterance.labels, minlength=36))


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
