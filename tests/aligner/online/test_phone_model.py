import numpy as np
import pytest

from testbed.disturbed_speech import with_noise
from testbed.known_speech import espeak
from testbed.noise import breath, pink
from voiceagent_tts.aligner.online.features import BANDS, FRAMES_SEEN, frames_of
from voiceagent_tts.aligner.online.phone_model import phone_model
from voiceagent_tts.aligner.online.phones import PHONES, SILENCE, VOWELS
from voiceagent_tts.aligner.online.voice_profile import VoiceProfile
from voiceagent_tts.core import SAMPLE_RATE_HZ

SILENT = PHONES.index(SILENCE)


def phone_costs(pcm: bytes) -> np.ndarray:
    """[N, PHONES], of audio whose voice was known before."""
    frames = frames_of(pcm)
    profile = VoiceProfile()
    profile.phone_costs(frames)
    return profile.phone_costs(frames)


def test_costs_are_bounded() -> None:
    """Any spectra, however strange, give finite costs between 0 and 6 for every phone."""
    rng = np.random.default_rng(1)
    for scale in (0.0, 1.0, 1e4):
        spectra = (scale * rng.standard_normal((20, FRAMES_SEEN, BANDS))).astype(np.float32)
        costs = phone_model().costs(spectra, phone_model().typical_spectrum)
        assert costs.shape == (20, len(PHONES))
        assert costs.min() >= 0.0
        assert costs.max() <= 6.0


@pytest.mark.parametrize("voice", ["f2", "m2", "f4", "m7"])
@pytest.mark.parametrize("below_db", [60, 30])
def test_phones_are_heard(voice: str, below_db: float) -> None:
    """Of voices that it has not been trained on it names vowels and consonants, in noise too."""
    for text, consonant, vowels in (
        ("I see.", "s", "i"),
        ("My shoe.", "ʃ", "u"),
        ("A saw.", "s", "ɑʌo"),
    ):
        spoken = with_noise(espeak(text, "en", voice, 0.6), pink, below_db, 1)
        heard = [PHONES[phone] for phone in phone_costs(spoken.pcm).argmin(axis=1)]
        assert heard.count(consonant) >= 2, heard
        assert sum(phone in vowels for phone in heard) >= 8, heard


def test_rooms_and_breaths_are_silence() -> None:
    """After a voice, noise 25 dB below it and a breath cost less as silence than as any vowel."""
    spoken = espeak("Thanks for waiting, your order left this morning.", "en", "f2")
    rng = np.random.default_rng(1)
    loudest = np.abs(np.frombuffer(spoken.pcm, "<i2")).max()
    vowels = [PHONES.index(phone) for phone in VOWELS]
    for sound in (pink(SAMPLE_RATE_HZ, rng), breath(SAMPLE_RATE_HZ // 3, rng)):
        pcm = (sound * loudest / 2 * 10 ** (-25 / 20)).astype("<i2").tobytes()
        costs = phone_costs(spoken.pcm + pcm)[-len(sound) // 240 + 15 : -15]
        assert (costs[:, SILENT] < costs[:, vowels].min(axis=1)).mean() > 0.9
