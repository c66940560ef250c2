"""The speaker encoder gives the official package's embedding of the reference audio."""

import numpy as np
import pytest
import soundfile
import torch

from testbed.parity_reference import REFERENCE, reference_voice
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.speaker_encoder import SpeakerEncoder


@pytest.fixture
def encoder(base: Checkpoint) -> SpeakerEncoder:
    """The speaker encoder of the tiny Base checkpoint."""
    assert base.speaker_encoder
    return base.speaker_encoder


def test_the_embedding_is_that_of_the_official_package(encoder: SpeakerEncoder) -> None:
    """The embedding of the reference audio equals the official one within 1e-4."""
    samples, rate = soundfile.read(REFERENCE / "reference.wav", dtype="float32")
    assert rate == 24_000
    made = encoder.embed(torch.from_numpy(samples))
    torch.testing.assert_close(made, reference_voice().speaker_embedding, rtol=0, atol=1e-4)


def test_a_tone_peaks_in_its_band(encoder: SpeakerEncoder) -> None:
    """The spectrogram has one frame per 256 samples, and a tone peaks in its own band."""
    seconds = np.arange(24_000) / 24_000
    tone = torch.from_numpy(np.sin(2 * np.pi * 1000 * seconds).astype(np.float32))
    spectrogram = encoder.mel_spectrogram(tone[None])
    assert spectrogram.shape == (1, 128, 24_000 // 256)
    loudest = spectrogram[0, :, 40].argmax()
    band = encoder.filters[loudest].nonzero().flatten() * 24_000 / 1024
    assert band.min() <= 1000 <= band.max()


def test_filters_are_those_of_the_published_model(encoder: SpeakerEncoder) -> None:
    """The filters equal those of `transformers` for the spectrogram of qwen-tts, to the bit."""
    from transformers.audio_utils import mel_filter_bank  # slow

    expected = mel_filter_bank(
        num_frequency_bins=513,
        num_mel_filters=128,
        min_frequency=0.0,
        max_frequency=12_000.0,
        sampling_rate=24_000,
        norm="slaney",
        mel_scale="slaney",
    )
    assert torch.equal(encoder.filters, torch.tensor(expected.T, dtype=torch.float32))


def test_audio_that_is_too_short_is_refused(encoder: SpeakerEncoder) -> None:
    """The shortest audio is embedded; one sample less is refused with both lengths."""
    shortest = torch.zeros(encoder.min_samples)
    assert encoder.embed(shortest).isfinite().all()
    expected = f"expected at least {encoder.min_samples} samples .* got {encoder.min_samples - 1}"
    with pytest.raises(InvalidRequestError, match=expected):
        encoder.embed(shortest[1:])


def test_a_half_precision_model_has_the_same_embedding(base: Checkpoint) -> None:
    """The speaker encoder is float32 in models of any precision."""
    assert base.speaker_encoder
    dtypes = {tensor.dtype for _, tensor in base.speaker_encoder.weights()}
    assert dtypes == {torch.float32}
