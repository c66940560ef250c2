import numpy as np
import pytest

from voiceagent_tts.aligner.online.features import HOP_SAMPLES, WIDTH, FrameStream, frames_of
from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ


def noise(samples: int, seed: int = 0) -> bytes:
    """White noise at a fifth of full scale."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(samples) * 3_000).astype("<i2").tobytes()


def test_frames_cover_the_audio_one_per_hop() -> None:
    """There is a frame for every 10 ms, with its centre inside the audio."""
    pcm = noise(SAMPLE_RATE_HZ)
    frames = frames_of(pcm, 1.0)
    assert len(frames) == 100
    assert frames.features.shape == (100, WIDTH)
    assert set(np.diff(frames.centres[2:])) == {HOP_SAMPLES}
    assert 0 <= frames.centres[0] <= frames.centres[-1] < SAMPLE_RATE_HZ


def test_a_stream_has_the_frames_of_the_whole() -> None:
    """Features in blocks and all at once are equal but for rounding."""
    pcm = noise(SAMPLE_RATE_HZ + 100)
    stream = FrameStream()
    blocks = [*stream.push(pcm), stream.flush()]
    whole = frames_of(pcm, 1.0)
    assert np.array_equal(np.concatenate([block.centres for block in blocks]), whole.centres)
    features = np.concatenate([block.features for block in blocks])
    np.testing.assert_allclose(features, whole.features, atol=1e-4)
    assert stream.pushed_samples == SAMPLE_RATE_HZ + 100


def test_a_block_waits_for_two_frames_only() -> None:
    """A codec frame gives eight frames, minus two that wait for their neighbours."""
    stream = FrameStream()
    assert [len(block) for block in stream.push(noise(3 * FRAME_SAMPLES))] == [6, 8, 8]
    assert stream.push(noise(FRAME_SAMPLES - 1)) == []
    assert len(stream.flush()) == 10


def test_the_clock_continues_after_a_flush() -> None:
    """Later audio follows all earlier audio, to the sample."""
    stream = FrameStream()
    stream.push(noise(1_000))
    stream.flush()
    (block,) = stream.push(noise(FRAME_SAMPLES))
    assert block.centres[2] - 1_000 == frames_of(noise(FRAME_SAMPLES), 1.0).centres[2]


def test_a_warped_tone_matches_the_tone_of_a_shorter_vocal_tract() -> None:
    """1,000 Hz warped by 1.2 has the features of 1,200 Hz."""
    time = np.arange(SAMPLE_RATE_HZ // 2) / SAMPLE_RATE_HZ

    def tone(hz: float, vtln_warp: float) -> np.ndarray:
        pcm = (np.sin(2 * np.pi * hz * time) * 8_000).astype("<i2").tobytes()
        return frames_of(pcm, vtln_warp).features[20, 1:8]

    wanted = tone(1_200, 1.0)
    warped, plain = (np.abs(tone(1_000, vtln_warp) - wanted).max() for vtln_warp in (1.2, 1.0))
    assert warped < plain / 3


@pytest.mark.parametrize("pitch_hz", [100, 130, 220, 390])
def test_a_pitch_is_voiced_and_noise_is_not(pitch_hz: int) -> None:
    """Pulses at the pitch of a voice are periodic at any level; noise is not."""
    pulses = np.zeros(SAMPLE_RATE_HZ // 2)
    pulses[:: SAMPLE_RATE_HZ // pitch_hz] = 1.0
    voice = np.convolve(pulses, np.hanning(40), "same")
    for level in (300, 10_000):
        frames = frames_of((voice * level).astype("<i2").tobytes(), 1.0)
        assert frames.voicing[5:-5].min() > 0.75
    assert np.mean(frames_of(noise(SAMPLE_RATE_HZ), 1.0).voicing < 0.7) > 0.95


def test_silence_is_quiet_but_finite() -> None:
    """Digital silence has a finite log energy, far below any voice."""
    frames = frames_of(bytes(2 * SAMPLE_RATE_HZ), 1.0)
    assert np.isfinite(frames.features).all()
    assert frames.voicing.max() == 0.0
    assert frames.log_energies.max() == pytest.approx(np.log(1e-10), abs=0.1)
