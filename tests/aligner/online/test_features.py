import numpy as np
import pytest

from voiceagent_tts.aligner.online.features import HOP_SAMPLES, WIDTH, FrameStream, frames_of
from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ


def noise(samples: int, seed: int = 0) -> bytes:
    """White noise at a fifth of full scale."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(samples) * 3_000).astype("<i2").tobytes()


def test_frames_cover_the_sound_a_hop_apart() -> None:
    """A frame for every 10 ms, whose centres lie inside the sound."""
    pcm = noise(SAMPLE_RATE_HZ)
    frames = frames_of(pcm, 1.0)
    assert len(frames) == 100
    assert frames.features.shape == (100, WIDTH)
    assert set(np.diff(frames.centres[2:])) == {HOP_SAMPLES}
    assert 0 <= frames.centres[0] <= frames.centres[-1] < SAMPLE_RATE_HZ


def test_a_stream_makes_the_frames_of_the_whole() -> None:
    """In blocks, or all at once: the same numbers but for rounding."""
    pcm = noise(SAMPLE_RATE_HZ + 100)
    stream = FrameStream()
    blocks = [*stream.push(pcm), stream.flush()]
    whole = frames_of(pcm, 1.0)
    assert np.array_equal(np.concatenate([block.centres for block in blocks]), whole.centres)
    features = np.concatenate([block.features for block in blocks])
    np.testing.assert_allclose(features, whole.features, atol=1e-4)
    assert stream.pushed_samples == SAMPLE_RATE_HZ + 100


def test_a_block_waits_for_nothing_but_two_frames() -> None:
    """A codec frame in, its eight frames out, less the two whose neighbours are to come."""
    stream = FrameStream()
    assert [len(block) for block in stream.push(noise(3 * FRAME_SAMPLES))] == [6, 8, 8]
    assert stream.push(noise(FRAME_SAMPLES - 1)) == []
    assert len(stream.flush()) == 10


def test_after_a_flush_the_clock_goes_on() -> None:
    """What is pushed next lies behind all that was pushed, to the sample."""
    stream = FrameStream()
    stream.push(noise(1_000))
    stream.flush()
    (block,) = stream.push(noise(FRAME_SAMPLES))
    assert block.centres[2] - 1_000 == frames_of(noise(FRAME_SAMPLES), 1.0).centres[2]


def test_a_warped_tone_is_the_same_tone_from_a_shorter_tract() -> None:
    """1,000 Hz warped by 1.2 is heard as 1,200 Hz is without."""
    time = np.arange(SAMPLE_RATE_HZ // 2) / SAMPLE_RATE_HZ

    def tone(hz: float, tract: float) -> np.ndarray:
        pcm = (np.sin(2 * np.pi * hz * time) * 8_000).astype("<i2").tobytes()
        return frames_of(pcm, tract).features[20, 1:8]

    wanted = tone(1_200, 1.0)
    warped, plain = (np.abs(tone(1_000, tract) - wanted).max() for tract in (1.2, 1.0))
    assert warped < plain / 3


def test_silence_is_quiet_but_finite() -> None:
    """Digital silence has a logarithm, far below any voice's."""
    frames = frames_of(bytes(2 * SAMPLE_RATE_HZ), 1.0)
    assert np.isfinite(frames.features).all()
    assert frames.log_energies.max() == pytest.approx(np.log(1e-10), abs=0.1)
