import numpy as np
import pytest

from testbed.disturbed_speech import with_gain, with_noise
from testbed.known_speech import espeak, with_lead
from testbed.noise import pink
from voiceagent_tts.aligner.online.features import BANDS, frames_of
from voiceagent_tts.aligner.online.phone_model import phone_model
from voiceagent_tts.aligner.online.voice_profile import SpeakingRate, UsualSpectrum, VoiceProfile

SENTENCE = "Thanks for waiting, your order left our warehouse this morning."


def spectra_of(pcm: bytes) -> np.ndarray:
    """[N, BANDS] of all frames."""
    return frames_of(pcm).own_spectra


def test_an_unknown_voice_is_typical() -> None:
    """Before anything is heard, the typical spectrum is the usual one."""
    np.testing.assert_allclose(UsualSpectrum().mean, phone_model().typical_spectrum, rtol=1e-5)


def test_a_voice_is_known_after_a_sentence() -> None:
    """Every band is that of the voice's own weighted mean within 1 nat, and of two within 0.1."""
    spectra = spectra_of(espeak(SENTENCE, "en", "m3").pcm)
    amplitudes = np.sqrt(np.exp(spectra).sum(axis=1))
    own = amplitudes @ spectra / amplitudes.sum()
    known = UsualSpectrum().including(spectra)
    assert np.abs(known.mean - own).max() < 1.0
    for _ in range(9):
        known = known.including(spectra)
    assert np.abs(known.mean - own).max() < 0.1


def test_the_room_counts_little() -> None:
    """A second of noise before the voice, 30 dB below it, moves its level by less than 0.5 nats."""
    spoken = espeak(SENTENCE, "en", "f3")
    alone = UsualSpectrum().including(spectra_of(spoken.pcm))
    after_noise = UsualSpectrum().including(
        spectra_of(with_noise(with_lead(spoken, 1_000), pink, 30, 1).pcm)
    )
    assert abs(after_noise.mean.mean() - alone.mean.mean()) < 0.5


def test_a_speaker_who_moves_away_is_followed() -> None:
    """After half a minute of a voice that is 15 dB quieter, half of the fall is known."""
    spoken = espeak(SENTENCE, "en", "f3")
    near, far = spectra_of(spoken.pcm), spectra_of(with_gain(spoken, -15).pcm)
    known = UsualSpectrum()
    for _ in range(10):
        known = known.including(near)
    before = known.mean.mean()
    for _ in range(3_000 // len(far)):
        known = known.including(far)
    assert before - known.mean.mean() > 0.5 * (near.mean() - far.mean())


def test_the_usual_spectrum_hardly_depends_on_the_parts() -> None:
    """Frames counted eight at a time or all at once give the same mean but for their age."""
    spectra = spectra_of(espeak(SENTENCE, "en", "f3").pcm)
    whole, parts = UsualSpectrum().including(spectra), UsualSpectrum()
    for start in range(0, len(spectra), 8):
        parts = parts.including(spectra[start : start + 8])
    assert whole.mean.shape == (BANDS,)
    np.testing.assert_allclose(parts.mean, whole.mean, atol=0.15)


def test_a_profile_learns_from_the_frames_that_it_judges() -> None:
    """The first frames of a loud voice are judged by a spectrum that includes them."""
    frames = frames_of(with_gain(espeak(SENTENCE, "en", "f3"), 6).pcm)
    profile = VoiceProfile()
    costs = profile.phone_costs(frames)
    expected = phone_model().costs(
        frames.spectra, UsualSpectrum().including(frames.own_spectra).mean
    )
    assert np.array_equal(costs, expected)


def test_the_speaking_rate_follows_the_words() -> None:
    """It approaches the voice's own and stays in the range of real voices."""
    rate = SpeakingRate()
    for _ in range(40):
        rate = rate.including(60, 40.0)
    assert rate.duration_ratio == pytest.approx(1.5, abs=0.05)
    assert SpeakingRate().including(100_000, 10.0).duration_ratio == 2.0
