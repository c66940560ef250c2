"""What is measured of a reference recording, on speech with known noise, pauses and level."""

import numpy as np
import numpy.typing as npt
import pytest
import soxr

from testbed.known_speech import espeak
from voiceagent_tts.audio.pcm import pcm_to_float
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.recordings.reference import Examination, examine_reference, find_speech

TEXT = (
    "The quick brown fox jumps over the lazy dog. "
    "Then it goes home, and sleeps until the morning comes."
)

Samples = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def speech() -> Samples:
    """Six seconds of speech, half as loud as a file can hold."""
    samples = pcm_to_float(espeak(TEXT, "en", "f2").pcm)
    return samples / np.abs(samples).max() / 2


def silence(seconds: float) -> Samples:
    """Silence of a length."""
    return np.zeros(round(seconds * SAMPLE_RATE_HZ), np.float32)


def examined(samples: Samples) -> Examination:
    """What is measured of `samples`."""
    return examine_reference(samples, find_speech(samples))


def test_silence_at_both_ends_is_trimmed_and_pauses_stay(speech: Samples) -> None:
    """What remains begins and ends within half a second of the speech."""
    samples = np.concatenate([silence(2.0), speech, silence(1.0), speech, silence(3.0)])
    measured = examined(samples)
    speech_s = 1.0 + 2 * len(speech) / SAMPLE_RATE_HZ
    assert speech_s - 0.5 < measured.duration_s < speech_s + 0.5
    assert measured.trimmed_s == pytest.approx(len(samples) / SAMPLE_RATE_HZ - measured.duration_s)


@pytest.mark.parametrize("snr_db", [40, 10])
@pytest.mark.parametrize("has_pauses", [True, False], ids=["pauses", "no pauses"])
def test_the_noise_is_measured(speech: Samples, snr_db: int, has_pauses: bool) -> None:
    """White noise of a known level is found within 2 dB, with and without pauses to find it in."""
    samples = np.concatenate([silence(1), speech, silence(1)]) if has_pauses else speech
    level = np.sqrt(np.square(speech).mean()) * 10 ** (-snr_db / 20)
    noise = np.random.default_rng(0).normal(0, level, len(samples))
    measured = examined((samples + noise).astype(np.float32))
    tolerance = 2 if has_pauses or snr_db < 40 else 8  # few frames of speech are as quiet as that
    assert measured.snr_db == pytest.approx(snr_db, abs=tolerance)
    is_noisy = any("above the noise" in sentence for sentence in measured.problems())
    assert is_noisy == (snr_db < 20)


@pytest.mark.parametrize("rate_hz", [16_000, 44_100])
def test_clipping_is_found_whatever_the_rate_of_the_file(speech: Samples, rate_hz: int) -> None:
    """Speech at twice full scale loses its peaks, and converting the rate does not hide it."""
    loud = np.clip(4 * soxr.resample(speech, SAMPLE_RATE_HZ, rate_hz), -1, 1)
    measured = examined(soxr.resample(loud, rate_hz, SAMPLE_RATE_HZ))
    assert 0.005 < measured.clipped_share < 0.05
    (problem,) = measured.problems()
    assert problem.startswith("expected at most 0.1% of clipped samples")


def test_length_counts_without_the_silence(speech: Samples) -> None:
    """Two seconds of speech are short however long the file is, and 38 are long."""
    (short,) = examined(np.concatenate([silence(2), speech[: 2 * SAMPLE_RATE_HZ]])).problems()
    assert short.startswith("expected at least 3 s of speech, got 2.")
    (long,) = examined(np.tile(speech, 6)).problems()
    assert long.startswith("expected at most 30 s, got 38.")


def test_a_recording_that_is_mostly_pauses_is_told(speech: Samples) -> None:
    """The share of speech is that between its first and its last word."""
    samples = np.concatenate([speech, silence(12), speech[:SAMPLE_RATE_HZ]])
    (problem,) = examined(samples).problems()
    assert problem.startswith("expected speech in at least 60% of the recording, got 3")


def test_a_tone_is_no_speech() -> None:
    """Nothing is trimmed where no speech was found."""
    times_s = np.arange(5 * SAMPLE_RATE_HZ) / SAMPLE_RATE_HZ
    measured = examined((0.3 * np.sin(2 * np.pi * 440 * times_s)).astype(np.float32))
    assert measured.problems() == ["found no speech in the recording"]
    assert (measured.duration_s, measured.trimmed_s) == (5.0, 0.0)
