import numpy as np
import pytest

from testbed.disturbed_speech import Noise
from testbed.known_speech import espeak
from testbed.noise import babble, breath, pink
from voiceagent_tts.aligner.online.features import CEPSTRA, Frames, frames_of
from voiceagent_tts.aligner.online.noise import (
    SPEECH_DISTANCE,
    NoiseTracker,
    distances_from,
    noise_in,
    pause_costs,
)
from voiceagent_tts.core import SAMPLE_RATE_HZ


def noisy_speech(noise_dbfs: float, kind: Noise = pink) -> tuple[Frames, np.ndarray]:
    """A second of noise, and four words in it; and which frames are loud speech."""
    clean = np.frombuffer(espeak("Could you repeat that?", "en", "f3").pcm, "<i2").astype(float)
    clean = np.concatenate((np.zeros(SAMPLE_RATE_HZ), clean))
    noise = kind(len(clean), np.random.default_rng(1)) * 32_768 * 10 ** (noise_dbfs / 20)
    frames, speech = (
        frames_of(np.rint(samples).astype("<i2").tobytes(), 1.0)
        for samples in (clean + noise, clean)
    )
    return frames, speech.log_energies > speech.log_energies.max() - 4.0


@pytest.mark.parametrize("noise_dbfs", [-75, -50, -35])
def test_noise_is_learnt_among_speech(noise_dbfs: float) -> None:
    """Steady noise sounds like a pause at any level, and loud speech in it does not."""
    frames, is_loud = noisy_speech(noise_dbfs)
    cepstra = frames.features[:, :CEPSTRA]
    distances = noise_in(cepstra).distances(cepstra)
    is_pause = np.arange(len(frames)) < 95
    assert (distances[is_pause] < SPEECH_DISTANCE).mean() > 0.97
    assert (distances[is_loud] > SPEECH_DISTANCE).mean() > 0.97


def test_far_voices_are_noise_to_a_near_one() -> None:
    """Loudness tells a voice from a babble of voices, whose spectrum varies like its own."""
    frames, is_loud = noisy_speech(-40, babble)
    cepstra = frames.features[:, :CEPSTRA]
    costs = pause_costs(noise_in(cepstra).distances(cepstra), frames.voicing, 2.0)
    is_pause = np.arange(len(frames)) < 95
    assert costs[is_pause].mean() < 5.0
    assert costs[is_loud].mean() > 8.0


def test_a_quieter_frame_is_no_less_a_pause() -> None:
    """Loudness counts one way only: below the noise there is no speech."""
    frames, _ = noisy_speech(-50)
    cepstra = frames.features[:95, :CEPSTRA].copy()
    noise = noise_in(frames.features[:, :CEPSTRA])
    quieter = cepstra - np.eye(CEPSTRA, dtype=np.float32)[0] * 500
    assert (noise.distances(quieter) <= noise.distances(cepstra)).all()


def test_noise_is_unknown_at_first() -> None:
    """Until then only very quiet frames can be in a pause, and speech never is."""
    frames, _ = noisy_speech(-30)
    is_first = np.arange(len(frames)) < 10
    first = frames.select(is_first)
    tracker = NoiseTracker().including(first)
    assert tracker.noise is None
    distances = distances_from(None, first)
    assert np.isinf(distances).all()
    assert pause_costs(distances, np.ones(10, np.float32), 0.0).tolist() == [10.0] * 10
    assert tracker.including(frames.select(~is_first)).noise is not None
    quiet, _ = noisy_speech(-80)
    assert distances_from(None, quiet.select(np.arange(len(quiet)) < 10)).max() == 0.0


def test_noise_that_rises_is_known_after_three_seconds_of_it() -> None:
    """A pause in it sounds like one then, and a quieter room is forgotten."""
    quiet, _ = noisy_speech(-60)
    loud, _ = noisy_speech(-40)
    pause = loud.select(np.arange(len(loud)) < 95)
    tracker = NoiseTracker().including(quiet).including(quiet)
    assert (distances_from(tracker.noise, pause) > SPEECH_DISTANCE).mean() > 0.9
    for _ in range(4):
        tracker = tracker.including(pause)
    assert (distances_from(tracker.noise, pause) < SPEECH_DISTANCE).mean() > 0.9


@pytest.mark.parametrize(("contrast", "limits"), [(1.0, (6.0, 10.0)), (6.0, (5.5, 6.5))])
def test_what_is_no_word_may_be_left_out_of_clean_speech(
    contrast: float, limits: tuple[float, float]
) -> None:
    """Sound unlike the noise costs less in a pause where words can be told from other words."""
    voicing = np.array((0.3, 1.0), np.float32)
    costs = pause_costs(np.full(2, np.inf, np.float32), voicing, contrast)
    assert tuple(costs.tolist()) == limits


def test_a_breath_is_rather_in_a_pause_than_a_vowel_is() -> None:
    """A sound that no noise explains costs less in a pause where it has no pitch."""
    frames, is_loud = noisy_speech(-60)
    sound = breath(SAMPLE_RATE_HZ // 3, np.random.default_rng(1)) * 3_000
    breathed = frames_of(np.rint(sound).astype("<i2").tobytes(), 1.0)
    breathed = breathed.select(breathed.log_energies > breathed.log_energies.max() - 3.0)
    noise = noise_in(frames.features[:, :CEPSTRA])
    in_breath, in_speech = (
        pause_costs(noise.distances(some.features[:, :CEPSTRA]), some.voicing, 2.0)
        for some in (breathed, frames.select(is_loud))
    )
    assert in_breath.mean() < 7.5
    assert in_speech.mean() > 9.0


def test_steady_vowels_are_no_noise() -> None:
    """Speech without a pause does not teach that quiet voiced frames are a pause."""
    frames, _ = noisy_speech(-35)
    assert (frames.voicing[:95] < 0.7).mean() > 0.97
    is_voiced = frames.voicing >= 0.7
    tracker = NoiseTracker().including(frames.select(is_voiced))
    assert is_voiced.sum() > 40
    assert len(tracker.recent) == 0


def test_no_frames_change_nothing() -> None:
    """Without a frame the tracker stays as it was."""
    frames, _ = noisy_speech(-40)
    tracker = NoiseTracker().including(frames)
    assert tracker.including(frames.select(np.zeros(len(frames), np.bool_))) is tracker


def test_memory_is_bounded() -> None:
    """The last seconds are kept, whatever came before."""
    frames, _ = noisy_speech(-40)
    tracker = NoiseTracker()
    for _ in range(6):
        tracker = tracker.including(frames)
    assert len(tracker.recent) == 300
