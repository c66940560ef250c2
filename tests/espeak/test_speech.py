import hashlib
import subprocess
import sys

import numpy as np
import pytest
import soxr

from tests.espeak.driving import Driver
from voiceagent_tts.core import SAMPLE_RATE_HZ, Segment, ms_to_samples
from voiceagent_tts.espeak.library import ESPEAK_RATE_HZ, EspeakLibrary
from voiceagent_tts.espeak.pieces import split_pieces
from voiceagent_tts.espeak.speech import Delivery, Speech, speak
from voiceagent_tts.espeak.voices import EspeakVoice

ENGLISH = EspeakVoice("gmw/en-US", 50)


def speech_of(library: EspeakLibrary, text: str, **options) -> Speech:
    """Speak one piece at normal speed."""
    settings = {"words_per_minute": 175, "has_end_pause": False, "trims_lead": False} | options
    (piece,) = split_pieces(Segment(text, 0))
    speech = speak(library, piece, Delivery(voice=ENGLISH, **settings), lambda: True)
    assert speech is not None
    return speech


def samples_of(speech: Speech) -> np.ndarray:
    """The PCM as [S] numbers."""
    return np.frombuffer(speech.pcm, "<i2").astype(float)


def test_resampling_keeps_the_length_to_the_sample(library: EspeakLibrary) -> None:
    """Word positions are scaled by the ratio of the rates, so the sound must be too."""
    chunks: list[np.ndarray] = []
    text = "Three hundred and fifty words a minute."
    library.synthesize(
        text, ENGLISH.identifier, 350, 50, lambda samples, _: chunks.append(samples) is None
    )
    at_22_khz = np.concatenate(chunks)
    speech = speech_of(library, text, words_per_minute=350)
    expected = round(len(at_22_khz) * SAMPLE_RATE_HZ / ESPEAK_RATE_HZ)
    assert abs(len(samples_of(speech)) - expected) <= ms_to_samples(5)  # espeak varies by as much
    for length in (0, 1, 147, 148, 4_411, 100_003):
        resampled = soxr.resample(np.zeros(length, np.float32), ESPEAK_RATE_HZ, SAMPLE_RATE_HZ)
        assert len(resampled) == round(length * SAMPLE_RATE_HZ / ESPEAK_RATE_HZ)


def test_the_first_sound_comes_early(library: EspeakLibrary) -> None:
    """Silence before the first sound is left out but for 2 ms, and words move with the sound."""
    for text in ("Go on.", "Table.", "Hello there.", "Apples."):
        whole, trimmed = speech_of(library, text), speech_of(library, text, trims_lead=True)
        first = int(np.argmax(np.abs(samples_of(trimmed)) >= 64))
        assert first <= ms_to_samples(2)
        assert trimmed.words[0].start_sample <= ms_to_samples(5)
        removed = len(samples_of(whole)) - len(samples_of(trimmed))
        (*_, late), (*_, early) = whole.words, trimmed.words
        assert abs((late.end_sample or 0) - (early.end_sample or 0) - removed) <= ms_to_samples(1)


def test_speech_ends_in_silence(library: EspeakLibrary) -> None:
    """So the next segment can follow without a click."""
    for text in ("Hello there.", "I am going to", "Stop!", "a b c"):
        for has_end_pause in (False, True):
            tail = samples_of(speech_of(library, text, has_end_pause=has_end_pause))[-100:]
            assert np.abs(tail).max() < 64


def test_words_lie_inside_the_sound(library: EspeakLibrary) -> None:
    """Also at the fastest rate and with silence removed."""
    speech = speech_of(library, "Go, to the end of it.", words_per_minute=350, trims_lead=True)
    borders = [
        border for word in speech.words for border in (word.start_sample, word.end_sample or 0)
    ]
    assert borders == sorted(borders)
    assert 0 <= borders[0] <= borders[-1] <= len(speech.pcm) // 2


def test_what_cannot_be_pronounced_has_words_but_no_sound(library: EspeakLibrary) -> None:
    """Espeak passes over Hawaiian's ʻokina alone; the word is reported all the same."""
    speech = speech_of(library, "\u02bb")
    assert speech.pcm == b""
    assert len(speech.words) == 1
    assert not speech.words[0].is_exact


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_speed_scales_the_duration(driver: Driver, speed: float) -> None:
    """Espeak's own rate does it, within a fifth of the number asked for."""
    text = "The total comes to forty five euros and it should arrive within five business days."
    normal, changed = driver.speak(text), driver.speak(text, speed=speed)
    assert len(normal) / len(changed) == pytest.approx(speed, rel=0.2)


def test_a_fresh_process_gives_the_same_samples() -> None:
    """One text, two processes, the same bits and the same word times."""
    program = """
import sys
from tests.espeak.driving import Driver
driver = Driver()
pcm = driver.speak("The same text, twice. Is it?") + driver.speak("Grüß Gott!", "de", "f2")
sys.stdout.buffer.write(pcm + repr(driver.events).encode())
"""
    digests = {
        hashlib.sha256(
            subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
        ).hexdigest()
        for _ in range(2)
    }
    assert len(digests) == 1
