import numpy as np
import pytest

from testbed.disturbed_speech import Noise
from testbed.known_speech import espeak
from testbed.noise import babble, pink
from voiceagent_tts.aligner.online.features import CEPSTRA, Frames, frames_of
from voiceagent_tts.aligner.online.noise import (
    MAX_PAUSE_COST,
    SPEECH_DISTANCE,
    NoiseTracker,
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
    costs = pause_costs(
        noise_in(frames.features[:, :CEPSTRA]).distances(frames.features[:, :CEPSTRA])
    )
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
    tracker, distances = NoiseTracker().judge(frames.select(np.arange(len(frames)) < 10))
    assert np.isinf(distances).all()
    assert pause_costs(distances).tolist() == [MAX_PAUSE_COST] * 10
    _, distances = tracker.judge(frames.select(np.arange(len(frames)) >= 10))
    assert np.isfinite(distances).all()
    quiet, _ = noisy_speech(-80)
    assert NoiseTracker().judge(quiet.select(np.arange(len(quiet)) < 10))[1].max() == 0.0


def test_no_frames_change_nothing() -> None:
    """Silence without an audible frame leaves the tracker as it was."""
    frames, _ = noisy_speech(-40)
    tracker, _ = NoiseTracker().judge(frames)
    same, distances = tracker.judge(frames.select(np.zeros(len(frames), np.bool_)))
    assert same is tracker
    assert len(distances) == 0


def test_memory_is_bounded() -> None:
    """The last seconds are kept, whatever came before."""
    frames, _ = noisy_speech(-40)
    tracker = NoiseTracker()
    for _ in range(8):
        tracker, _ = tracker.judge(frames)
    assert len(tracker.recent) == 500
