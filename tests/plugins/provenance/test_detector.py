"""The detector: marked audio is found, whole and cut, after codecs; other audio is not."""

import io

import av
import numpy as np
import pytest
import soxr

from testbed.watermarks import OTHER_KEY, TEST_KEY, as_floats, speech_pcm
from voiceagent_tts.audio.output import OutputStream
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.provenance.detector import MAX_FALSE_ALARMS, detect, score_threshold
from voiceagent_tts.plugins.provenance.watermark import mark
from voiceagent_tts.plugins.speech.containers import ContainerEncoder, ContainerFormat


def clip(pcm: bytes, start_s: float, seconds: float) -> bytes:
    """Cut a part of PCM16 at 24 kHz."""
    first, count = round(start_s * SAMPLE_RATE_HZ), round(seconds * SAMPLE_RATE_HZ)
    return pcm[2 * first : 2 * (first + count)]


def decoded(data: bytes) -> np.ndarray:
    """Decode a file with FFmpeg: [S] float32 at 24 kHz."""
    resampler = av.AudioResampler("s16", "mono", SAMPLE_RATE_HZ)
    with av.open(io.BytesIO(data)) as container:
        frames = [part for f in container.decode(audio=0) for part in resampler.resample(f)]
    return as_floats(np.concatenate([frame.to_ndarray()[0] for frame in frames]).tobytes())


def test_the_mark_is_found_with_its_key_only() -> None:
    """Marked speech is found by its key, among others; not by another, nor unmarked speech."""
    marked = as_floats(mark(speech_pcm(), TEST_KEY))
    found = detect(marked, [OTHER_KEY, TEST_KEY])
    assert found.is_marked and found.key_id == TEST_KEY.id
    assert found.score > 2 * found.threshold
    assert found.marked_s == ((0.0, found.duration_s),)
    wrong = detect(marked, [OTHER_KEY])
    assert not wrong.is_marked and wrong.key_id is None and wrong.marked_s == ()
    assert not detect(as_floats(speech_pcm()), [TEST_KEY, OTHER_KEY]).is_marked


@pytest.mark.parametrize("start_s", [0.0, 3.3333])
def test_a_clip_of_three_seconds_is_enough(start_s: float) -> None:
    """Three seconds are found wherever they were cut."""
    marked = mark(speech_pcm(), TEST_KEY)
    assert detect(as_floats(clip(marked, start_s, 3.0)), [TEST_KEY]).is_marked
    assert not detect(as_floats(clip(speech_pcm(), start_s, 3.0)), [TEST_KEY]).is_marked


@pytest.mark.parametrize("container_format", ["mp3", "opus", "aac", "flac", "wav"])
def test_the_mark_survives_our_files(container_format: ContainerFormat) -> None:
    """Every file format of the server keeps the mark, of three seconds too."""
    encoder = ContainerEncoder(container_format)
    file = encoder.push(mark(speech_pcm(), TEST_KEY)) + encoder.finish()
    samples = decoded(file)
    assert detect(samples, [TEST_KEY]).is_marked
    assert detect(samples[24_000:96_000], [TEST_KEY]).is_marked


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 48_000])
def test_the_mark_survives_other_rates_and_the_telephone(rate_hz: int) -> None:
    """Resampled and mu-law audio is found."""
    output = OutputStream("pcm_s16le", rate_hz)
    pcm = output.push(mark(speech_pcm(), TEST_KEY)) + output.finish()
    samples = soxr.resample(as_floats(pcm), rate_hz, SAMPLE_RATE_HZ)
    if rate_hz == 8_000:  # mu-law's logarithmic steps; G.711 rounds in the same way
        levels = np.log1p(255 * np.abs(samples)) / np.log1p(255)
        steps = np.rint(levels * 127) / 127
        samples = np.sign(samples) * (np.exp(steps * np.log1p(255)) - 1) / 255
    assert detect(samples.astype(np.float32), [TEST_KEY]).is_marked


def test_the_marked_part_of_a_longer_file_is_named() -> None:
    """A marked passage within unmarked speech is found; two blocks (8 s) may be judged together.

    So a part may begin and end up to 8 s outside of the mark, and less than a block inside.
    """
    unmarked = speech_pcm()
    passage = mark(unmarked, TEST_KEY)
    found = detect(as_floats(unmarked * 2 + passage + unmarked), [TEST_KEY])
    start_s, length_s = 2 * len(unmarked) / 48_000, len(passage) / 48_000
    ((first_s, last_s),) = found.marked_s
    end_s = start_s + length_s
    assert start_s - 8.2 <= first_s <= start_s + 4.1
    assert end_s - 4.1 <= last_s <= end_s + 8.2
    assert found.is_marked


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(0, np.float32),
        np.zeros(100, np.float32),
        np.zeros(240_000, np.float32),
        np.full(120_000, 0.5, np.float32),
        np.sin(np.arange(240_000) * 0.05).astype(np.float32),
        np.random.default_rng(1).uniform(-1, 1, 240_000).astype(np.float32),
    ],
    ids=["empty", "4 ms", "silence", "constant", "tone", "noise"],
)
def test_other_sounds_are_unmarked(samples: np.ndarray) -> None:
    """Audio without a mark gets a verdict, also where there is nothing to judge."""
    found = detect(samples, [TEST_KEY])
    assert not found.is_marked and np.isfinite(found.score)
    assert found.duration_s == pytest.approx(len(samples) / SAMPLE_RATE_HZ, abs=1e-3)


def test_the_threshold_keeps_the_bound() -> None:
    """More tests need a higher score, by Hoeffding's bound."""
    for tests in (512, 51_200):
        assert tests * np.exp(-(score_threshold(tests) ** 2) / 2) == pytest.approx(MAX_FALSE_ALARMS)
