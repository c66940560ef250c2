"""Transcripts of recordings: one that is not what was said is told apart by its sounds."""

import unittest.mock

import numpy as np
import pytest

from testbed.known_speech import KnownSpeech, espeak
from voiceagent_tts.plugins.clones import transcript_fit
from voiceagent_tts.plugins.clones.transcript import recording_problems

SAID = {
    "en": "Your table for two is booked for Friday evening.",
    "de": "Der Arzt hat morgen um halb drei noch einen Termin frei.",
    "fr": "Votre commande est partie ce matin et arrive demain.",
    "es": "La reunión de mañana empieza a las nueve en punto.",
    "nl": "De dokter kan u morgen in de Hoofdstraat ontvangen.",
    "ru": "Ваш заказ отправлен сегодня утром и придёт завтра.",
    "ko": "내일 오전에 주문하신 상품이 도착할 예정입니다.",
    "zh": "您的订单今天早上已经发出，明天下午就会送到。",
}
OTHERS = [("en", "de"), ("es", "nl"), ("ru", "de")]


def problems(said: KnownSpeech, text: str, noise_db: float | None = None) -> list[str]:
    """The problems of a recording and a text of about its length."""
    samples = np.frombuffer(said.pcm, "<i2").astype(np.float32) / np.float32(32768)
    if noise_db is not None:
        level = samples.std() * 10 ** (-noise_db / 20)
        samples += np.random.default_rng(1).normal(0, level, len(samples)).astype(np.float32)
    return recording_problems(text, samples, len(samples) / 24_000)


@pytest.mark.parametrize("language", SAID)
def test_what_was_said_is_accepted(language: str) -> None:
    """In every script, in noise 10 dB below the voice."""
    said = espeak(SAID[language], language, "m3")
    assert problems(said, said.text, noise_db=10.0) == []


@pytest.mark.parametrize(("spoken", "written"), OTHERS)
def test_another_language_is_told(spoken: str, written: str) -> None:
    """The text has the script and the length of what was said."""
    (problem,) = problems(espeak(SAID[spoken], spoken, "f2"), SAID[written])
    assert "expected a transcript of what is said" in problem and SAID[written] not in problem


def test_a_text_whose_sounds_are_not_known_is_not_judged() -> None:
    """Kanji have many readings, and no voice speaks Polish: a doubt would be a guess."""
    said = espeak(SAID["en"], "en", "m3")
    assert problems(said, "今日は天気がいいですね、公園へ行きましょう。") == []
    assert problems(said, "Cześć, jak się dzisiaj czujesz, mój drogi przyjacielu?") == []


def test_without_espeak_the_sounds_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cloning does not need the library or its package; a module of our own is needed."""
    said = espeak(SAID["en"], "en", "m3")
    missing = ModuleNotFoundError("no such module", name="espeakng_loader")
    judging = unittest.mock.Mock(side_effect=missing)
    monkeypatch.setattr(transcript_fit, "transcript_fit", judging)
    assert problems(said, SAID["de"]) == []
    missing.name = "voiceagent_tts.espeak"
    with pytest.raises(ModuleNotFoundError):
        problems(said, SAID["de"])


def test_a_short_sound_is_not_judged() -> None:
    """A second of speech has too few phones."""
    assert problems(espeak("Good evening.", "en", "m3"), "Danke schön.") == []
