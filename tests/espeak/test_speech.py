import hashlib
import subprocess
import sys

import numpy as np
import pytest

from testbed.segment_driving import Driver
from voiceagent_tts.core import SAMPLE_RATE_HZ, Segment, ms_to_samples
from voiceagent_tts.espeak.catalogue import EspeakVoice
from voiceagent_tts.espeak.library import ESPEAK_RATE_HZ, EspeakLibrary
from voiceagent_tts.espeak.pieces import split_pieces
from voiceagent_tts.espeak.speech import Delivery, Speech, _at_24_khz, speak

ENGLISH = EspeakVoice("gmw/en-US", 50)


def speech_of(library: EspeakLibrary, text: str, **options) -> Speech:
    settings = {"words_per_minute": 175, "has_end_pause": False, "trims_lead": False} | options
    (piece,) = split_pieces(Segment(text, 0), "en")
    speech = speak(library, piece, Delivery(voice=ENGLISH, **settings), lambda: True)
    assert speech is not None
    return speech


def samples_of(speech: Speech) -> np.ndarray:
    """The PCM as [S] numbers."""
    return np.frombuffer(speech.pcm, "<i2").astype(float)


@pytest.mark.parametrize("length", [1, 147, 148, 4_411, 100_003])
def test_resampling_keeps_length_and_positions(length: int) -> None:
    """Word positions are scaled by the ratio of the rates, so the samples must be too."""
    samples = np.zeros(length, np.int16)
    samples[length // 2] = 30_000
    resampled = np.frombuffer(_at_24_khz(samples), "<i2").astype(int)
    assert len(resampled) == round(length * SAMPLE_RATE_HZ / ESPEAK_RATE_HZ)
    expected = length // 2 * SAMPLE_RATE_HZ / ESPEAK_RATE_HZ
    assert abs(np.abs(resampled).argmax() - expected) <= 1


def test_the_first_sound_comes_early(library: EspeakLibrary) -> None:
    """Silence before the first sound is cut to 2 ms, and the words move with the audio."""
    for text in ("Go on.", "Table.", "Hello there.", "Apples."):
        whole, trimmed = speech_of(library, text), speech_of(library, text, trims_lead=True)
        first = int(np.argmax(np.abs(samples_of(trimmed)) >= 64))
        assert first <= ms_to_samples(2)
        assert trimmed.words[0].start_sample <= ms_to_samples(5)
        removed = len(samples_of(whole)) - len(samples_of(trimmed))
        (*_, late), (*_, early) = whole.words, trimmed.words
        assert abs((late.end_sample or 0) - (early.end_sample or 0) - removed) <= ms_to_samples(1)


def test_speech_ends_in_silence(library: EspeakLibrary) -> None:
    """The next segment can follow without a click."""
    for text in ("Hello there.", "I am going to", "Stop!", "a b c"):
        for has_end_pause in (False, True):
            tail = samples_of(speech_of(library, text, has_end_pause=has_end_pause))[-100:]
            assert np.abs(tail).max() < 64


def test_what_cannot_be_pronounced_has_words_but_no_sound(library: EspeakLibrary) -> None:
    speech = speech_of(library, "\u02bb")
    assert speech.pcm == b""
    assert len(speech.words) == 1
    assert not speech.words[0].is_exact


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_speed_scales_the_duration(driver: Driver, speed: float) -> None:
    """Espeak's own rate is within a fifth of the requested one."""
    text = "The total comes to forty five euros and it should arrive within five business days."
    normal, changed = driver.speak(text), driver.speak(text, speed=speed)
    assert len(normal) / len(changed) == pytest.approx(speed, rel=0.2)


def test_a_fresh_process_gives_the_same_samples() -> None:
    """Samples and word times are equal in every new process, even with a breathy voice."""
    program = """
import sys
from testbed.segment_driving import Driver
from testbed.sentences import SENTENCES
driver = Driver()
pcm = driver.speak("The same text, twice. Is it?") + driver.speak("Grüß Gott!", "de", "f2")
sys.stdout.buffer.write(pcm + repr(driver.events).encode())
"""
    digests = {
        hashlib.sha256(
            subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
        ).hexdigest()
        for _ in range(5)  # more than a second in all, as espeak knows the time in seconds
    }
    assert len(digests) == 1
