import numpy as np
import pytest

from voiceagent_tts.aligner.online.features import (
    BANDS,
    FRAMES_AFTER,
    FRAMES_BEFORE,
    FRAMES_SEEN,
    HOP_SAMPLES,
    FrameStream,
    frames_of,
)
from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ


def noise(samples: int, seed: int = 0) -> bytes:
    """White noise at a fifth of full scale."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(samples) * 3_000).astype("<i2").tobytes()


def test_frames_cover_the_audio_one_per_hop() -> None:
    """There is a frame for every 10 ms, with its centre inside the audio."""
    pcm = noise(SAMPLE_RATE_HZ)
    frames = frames_of(pcm)
    assert len(frames) == 100
    assert frames.spectra.shape == (100, FRAMES_SEEN, BANDS)
    assert set(np.diff(frames.centres[2:])) == {HOP_SAMPLES}
    assert 0 <= frames.centres[0] <= frames.centres[-1] < SAMPLE_RATE_HZ


def test_a_stream_has_the_frames_of_the_whole() -> None:
    """Spectra in blocks and all at once are equal but for rounding."""
    pcm = noise(SAMPLE_RATE_HZ + 100)
    stream = FrameStream()
    blocks = [*stream.push(pcm), stream.flush()]
    whole = frames_of(pcm)
    assert np.array_equal(np.concatenate([block.centres for block in blocks]), whole.centres)
    spectra = np.concatenate([block.spectra for block in blocks])
    np.testing.assert_allclose(spectra, whole.spectra, atol=1e-4)
    assert stream.pushed_samples == SAMPLE_RATE_HZ + 100


def test_a_frame_sees_its_neighbours() -> None:
    """The spectra around a frame are those of the frames before and after it."""
    frames = frames_of(noise(SAMPLE_RATE_HZ))
    own = frames.own_spectra
    for place in (FRAMES_BEFORE, 50, len(frames) - FRAMES_AFTER - 1):
        near = own[place - FRAMES_BEFORE : place + FRAMES_AFTER + 1]
        assert np.array_equal(frames.spectra[place], near)
    assert (frames.spectra[0, :FRAMES_BEFORE] == own[0]).all(), "the first frame is repeated"
    assert (frames.spectra[-1, FRAMES_BEFORE:] == own[-1]).all(), "the last one, too"


def test_a_block_waits_for_the_next_frames() -> None:
    """A codec frame gives eight frames, minus five that wait for their neighbours."""
    stream = FrameStream()
    assert [len(block) for block in stream.push(noise(3 * FRAME_SAMPLES))] == [3, 8, 8]
    assert stream.push(noise(FRAME_SAMPLES - 1)) == []
    assert len(stream.flush()) == 13


def test_the_clock_continues_after_a_flush() -> None:
    """Later audio follows all earlier audio, to the sample."""
    stream = FrameStream()
    stream.push(noise(1_000))
    stream.flush()
    (block,) = stream.push(noise(FRAME_SAMPLES))
    assert block.centres[2] - 1_000 == frames_of(noise(FRAME_SAMPLES)).centres[2]


def test_a_louder_voice_differs_by_a_constant() -> None:
    """Twice the amplitude adds the logarithm of four to every band."""
    quiet, loud = (
        frames_of((np.frombuffer(noise(9_600), "<i2") * gain).astype("<i2").tobytes())
        for gain in (1, 2)
    )
    np.testing.assert_allclose(loud.spectra - quiet.spectra, np.log(4), atol=0.02)
    np.testing.assert_allclose(loud.log_energies - quiet.log_energies, np.log(4), atol=1e-3)


def test_silence_is_quiet_but_finite() -> None:
    """Digital silence has a finite log energy, far below any voice."""
    frames = frames_of(bytes(2 * SAMPLE_RATE_HZ))
    assert np.isfinite(frames.spectra).all()
    assert frames.log_energies.max() == pytest.approx(np.log(1e-10), abs=0.1)
