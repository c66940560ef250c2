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


def frames(log_energies: list[float], offset: float = 0.0) -> Frames:
    """Random features around `offset`, at these energies."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((len(log_energies), WIDTH)).astype(np.float32) + offset
    return Frames(
        np.arange(len(log_energies)),
        features.astype(np.float32),
        np.array(log_energies, np.float32),
    )


def test_silence_is_what_lies_far_under_the_loudest_frame_so_far() -> None:
    """43 dB under it, or under -61 dBFS; never judged by what comes later."""
    _, loud = SpeechNormalizer().normalize(frames([-20.0, -13.0, -4.0, -13.5, -15.0]))
    assert loud.centres.tolist() == [1, 2, 3]
    known, loud = SpeechNormalizer(level=-2.0).normalize(frames([-13.0, -11.0]))
    assert loud.centres.tolist() == [1]
    assert known.level == -2.0


def test_an_average_is_the_same_in_parts() -> None:
    """Frames counted together or one after the other give one mean and variance."""
    features = frames([0.0] * 60, offset=3.0).features
    parts = FeatureStatistics().including(features[:10]).including(features[10:])
    np.testing.assert_allclose(parts.mean, features.mean(axis=0), rtol=1e-5)
    whole = FeatureStatistics().including(features)
    np.testing.assert_allclose(parts.normalized(features), whole.normalized(features), atol=1e-4)


def test_another_voice_becomes_comparable() -> None:
    """Features that differ by an offset and a scale are the same when normalized."""
    features = frames([0.0] * 50).features
    other = features * np.float32(3.0) + np.float32(7.0)
    ours = FeatureStatistics().including(features).normalized(features)
    theirs = FeatureStatistics().including(other).normalized(other)
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_the_pace_follows_what_was_spoken() -> None:
    """It comes to the voice's own, and stays within what a voice can do."""
    pace = SpeakingRate()
    for _ in range(40):
        pace = pace.including(60, 40.0)
    assert pace.duration_ratio == pytest.approx(1.5, abs=0.05)
    assert SpeakingRate().including(100_000, 10.0).duration_ratio == 2.0


def test_short_contexts_find_a_voices_tract_together() -> None:
    """None is chosen from too little; then it is the one that cost least in all of them."""
    voice = VoiceProfile()
    for costs in ([0, 1, 9, 9], [5, 0, 3, 9], [2, 0, 1, 9]):
        assert voice.vtln_warp is None
        voice.add_trial(WARP_TRIAL_FRAMES // 3 + 1, np.array(costs, np.float32))
    assert voice.vtln_warp == VTLN_WARPS[1]
    voice.add_trial(WARP_TRIAL_FRAMES, np.array([0, 99, 99, 99], np.float32))
    assert voice.vtln_warp == VTLN_WARPS[1], "what is settled stays"
