"""PESQ and STOI fall with noise, and a codec's own delay is not hidden from them."""

from importlib.util import find_spec

import numpy as np
import pytest

from testbed.parity_reference import REFERENCE
from testbed.quality_clips import changed, spoken
from voiceagent_tts.plugins.bench.quality.clips import Samples
from voiceagent_tts.plugins.bench.quality.codecs import codec_values, distances, open_codec

HAS_PESQ = find_spec("pesq") is not None  # an extra that pip compiles


@pytest.fixture(scope="module")
def speech() -> Samples:
    """A sentence."""
    return spoken("Please bring the green umbrella back on your way home.").samples


def noisy(speech: Samples, snr_db: float) -> Samples:
    """Speech with white noise at a ratio to its mean power."""
    noise = np.random.default_rng(1).standard_normal(len(speech))
    level = np.sqrt(np.mean(speech**2)) * 10 ** (-snr_db / 20)
    return (speech + level * noise).astype(np.float32)


def test_unchanged_speech_is_at_the_top_of_each_scale(speech: Samples) -> None:
    """4.64, 4.55 and 1; more noise is lower on all of them."""
    same, little, much = (
        distances(speech, each) for each in (speech, noisy(speech, 30), noisy(speech, 5))
    )
    top = {"stoi": 1.0, **({"pesq_wb": 4.644, "pesq_nb": 4.549} if HAS_PESQ else {})}
    assert same == pytest.approx(top, abs=0.01)
    assert all(same[name] > little[name] > much[name] for name in same)


def test_padding_is_cut_and_silence_has_no_quality(speech: Samples) -> None:
    """Codecs fill their last frame."""
    padded = np.concatenate((speech, np.zeros(1_000, np.float32)))
    assert distances(speech, padded) == distances(speech, speech)
    assert distances(np.zeros(24_000, np.float32), np.zeros(24_000, np.float32)) == {}


def test_a_codec_with_random_weights_does_not_carry_speech() -> None:
    """The real codec's passage runs; its noise is far below speech."""
    clip = spoken("Sure, I can help you with that.")
    values = codec_values([clip, changed(clip, clip.samples[:4_000])],
                          open_codec(REFERENCE / "base-0b6"))  # fmt: skip
    assert len(values.of["stoi"]) == 1  # the clip of 0.17 s is too short
    assert values.of["stoi"][0] < 0.6
