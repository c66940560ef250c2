"""What the speaker encoder takes; its embedding is compared in `test_clone`."""

import pytest
import torch

from testbed.parity_reference import REFERENCE
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.recordings.clone import load_speaker_encoder
from voiceagent_tts.plugins.recordings.speaker_encoder import SpeakerEncoder


@pytest.fixture
def encoder() -> SpeakerEncoder:
    """The speaker encoder of the tiny Base checkpoint, whose weights have half precision."""
    return load_speaker_encoder(REFERENCE / "base-0b6")


def test_audio_that_is_too_short_is_refused(encoder: SpeakerEncoder) -> None:
    """The shortest audio is embedded; one sample less is refused with both lengths."""
    shortest = torch.zeros(encoder.min_samples)
    assert encoder.embed(shortest).isfinite().all()
    expected = f"expected at least {encoder.min_samples} samples .* got {encoder.min_samples - 1}"
    with pytest.raises(InvalidRequestError, match=expected):
        encoder.embed(shortest[1:])


def test_a_half_precision_model_has_the_same_embedding(encoder: SpeakerEncoder) -> None:
    """The speaker encoder is float32 in models of any precision."""
    assert {tensor.dtype for _, tensor in encoder.weights()} == {torch.float32}
