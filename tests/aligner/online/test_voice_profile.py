import numpy as np
import pytest

from voiceagent_tts.aligner.online.features import WIDTH, Frames
from voiceagent_tts.aligner.online.voice_profile import (
    VTLN_WARPS,
    WARP_TRIAL_FRAMES,
    FeatureStatistics,
    SpeakingRate,
    SpeechNormalizer,
    VoiceProfile,
)


def frames(log_energies: list[float], offset: float = 0.0, voicing: float = 0.0) -> Frames:
    """Random features around `offset`, with these log energies."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((len(log_energies), WIDTH)).astype(np.float32) + offset
    return Frames(
        np.arange(len(log_energies)),
        features.astype(np.float32),
        np.array(log_energies, np.float32),
        np.full(len(log_energies), voicing, np.float32),
    )


def test_silence_is_far_below_the_loudest_frame_so_far() -> None:
    """Silent is 43 dB below it, or below -87 dBFS; later frames change no decision."""
    _, loud = SpeechNormalizer().drop_silence(frames([-21.0, -13.0, -4.0, -13.5, -15.0]))
    assert loud.centres.tolist() == [1, 2, 3]
    known, loud = SpeechNormalizer(level=-2.0).drop_silence(frames([-13.0, -11.0]))
    assert loud.centres.tolist() == [1]
    assert known.level == -2.0


def test_a_speaker_who_moves_away_stays_audible() -> None:
    """Vowels that are quieter lower the level, by 4 dB a second; pauses and noise do not."""
    vowels, noise = (frames([-6.0] * 100, voicing=voicing) for voicing in (1.0, 0.3))
    near = SpeechNormalizer(level=-2.0)
    fallen, _ = near.drop_silence(vowels)
    assert fallen.level == pytest.approx(-3.0, abs=0.01)
    assert near.drop_silence(noise)[0].level == -2.0
    for _ in range(4):
        fallen, _ = fallen.drop_silence(vowels)
    assert fallen.level == -6.0


def test_what_is_left_out_as_silence_teaches_what_pauses_sound_like() -> None:
    """Noise far below the voice is noise, or the quietest consonants would be."""
    profile = VoiceProfile(normalizer=SpeechNormalizer(level=-2.0))
    audible, _ = profile.observe(frames([-14.0] * 50))
    assert len(audible) == 0
    assert profile.noise.noise is not None
    profile = VoiceProfile()
    profile.observe(frames([-30.0] * 50))
    assert profile.noise.noise is None


def test_statistics_do_not_depend_on_the_parts() -> None:
    """Frames counted together or in parts give equal means and variances."""
    features = frames([0.0] * 60, offset=3.0).features
    parts = FeatureStatistics().including(features[:10]).including(features[10:])
    np.testing.assert_allclose(parts.mean, features.mean(axis=0), rtol=1e-5)
    whole = FeatureStatistics().including(features)
    np.testing.assert_allclose(parts.normalized(features), whole.normalized(features), atol=1e-4)


def test_normalisation_makes_voices_comparable() -> None:
    """Features that differ by an offset and a scale are equal after normalisation."""
    features = frames([0.0] * 50).features
    other = features * np.float32(3.0) + np.float32(7.0)
    ours = FeatureStatistics().including(features).normalized(features)
    theirs = FeatureStatistics().including(other).normalized(other)
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_the_speaking_rate_follows_the_words() -> None:
    """It approaches the voice's own and stays in the range of real voices."""
    rate = SpeakingRate()
    for _ in range(40):
        rate = rate.including(60, 40.0)
    assert rate.duration_ratio == pytest.approx(1.5, abs=0.05)
    assert SpeakingRate().including(100_000, 10.0).duration_ratio == 2.0


def test_short_contexts_choose_a_warp_together() -> None:
    """With enough frames in total, the warp with the lowest total cost is chosen."""
    voice = VoiceProfile()
    for costs in ([0, 1, 9, 9], [5, 0, 3, 9], [2, 0, 1, 9]):
        assert voice.vtln_warp is None
        voice.add_trial(WARP_TRIAL_FRAMES // 3 + 1, np.array(costs, np.float32))
    assert voice.vtln_warp == VTLN_WARPS[1]
    voice.add_trial(WARP_TRIAL_FRAMES, np.array([0, 99, 99, 99], np.float32))
    assert voice.vtln_warp == VTLN_WARPS[1], "a chosen warp stays"
