"""Voices from a reference recording (its speaker embedding, its codes) and from a description."""

import pytest
import soundfile
import torch
from torch import Tensor

from testbed.parity_reference import REFERENCE, LoadTiny, reference_voice
from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.prompt import PromptBuilder
from voiceagent_tts.plugins.clones.design import design_voice
from voiceagent_tts.plugins.recordings.clone import (
    TAIL_SILENCE_S,
    ReferenceEncoder,
    load_reference_encoder,
)


@pytest.fixture(scope="module")
def encoder() -> ReferenceEncoder:
    """The encoders of the tiny Base checkpoint."""
    return load_reference_encoder(REFERENCE / "base-0b6")


@pytest.fixture(scope="module")
def samples() -> Tensor:
    """The reference audio; its last frame is partly filled."""
    return torch.from_numpy(soundfile.read(REFERENCE / "reference.wav", dtype="float32")[0])


def test_without_its_words_a_reference_gives_its_speaker(
    encoder: ReferenceEncoder, samples: Tensor
) -> None:
    """A clone without a transcript has the official speaker embedding and no codes."""
    voice = encoder.clone(samples)
    expected = reference_voice().speaker_embedding
    torch.testing.assert_close(voice.speaker_embedding, expected, rtol=0, atol=1e-4)
    assert voice.reference_codes is None


def test_audio_that_is_too_short_is_refused(encoder: ReferenceEncoder) -> None:
    """The shortest audio is embedded; one sample less is refused with both lengths."""
    speaker_encoder = encoder.speaker_encoder
    least = speaker_encoder.min_samples
    shortest = torch.zeros(least)
    assert speaker_encoder.embed(shortest).isfinite().all()
    with pytest.raises(
        InvalidRequestError, match=f"expected at least {least} samples .* got {least - 1}"
    ):
        speaker_encoder.embed(shortest[1:])


def test_with_its_words_a_reference_gives_its_codes(
    encoder: ReferenceEncoder, samples: Tensor
) -> None:
    """A clone with a transcript and no silence appended has the official package's codes."""
    voice = encoder.clone(samples, " quick brown fox ", tail_silence_s=0)
    assert voice.reference_codes is not None
    assert torch.equal(voice.reference_codes, reference_voice().reference_codes)
    assert voice.reference_text == "quick brown fox"


def test_silence_follows_the_reference(encoder: ReferenceEncoder, samples: Tensor) -> None:
    """By default silence is appended to the codes; the speaker embedding is computed without it."""
    voice, cut = encoder.clone(samples, "fox"), encoder.clone(samples, "fox", tail_silence_s=0)
    assert voice.reference_codes is not None and cut.reference_codes is not None
    frames = -(-(len(samples) + round(TAIL_SILENCE_S * 24_000)) // FRAME_SAMPLES)
    assert len(voice.reference_codes) == frames
    whole = len(samples) // FRAME_SAMPLES
    assert torch.equal(voice.reference_codes[:whole], cut.reference_codes[:whole])
    assert torch.equal(voice.speaker_embedding, cut.speaker_embedding)


def test_a_designed_voice_can_be_cloned(load_tiny: LoadTiny, encoder: ReferenceEncoder) -> None:
    """A voice designed from a description can be cloned, and the Base model accepts the clone."""
    designer, base = load_tiny("voice_design-1b7"), load_tiny("base-0b6")
    codec = load_codec(REFERENCE / "voice_design-1b7")

    def design(seed: int) -> Tensor:
        return design_voice(designer, codec, "An old sailor", "Ahoy!", "English", seed)

    sound = design(seed=1)
    assert sound.isfinite().all() and len(sound) % FRAME_SAMPLES == 0
    assert torch.equal(sound, design(seed=1))
    other = design(seed=2)
    assert len(other) != len(sound) or not torch.equal(sound, other)
    voice = encoder.clone(sound, "Ahoy!")
    prompt = PromptBuilder(base.config, base.tokenizer).build("Hello.", voice, "English")
    assert prompt.reference_codes is voice.reference_codes


def test_only_a_designer_designs(load_tiny: LoadTiny) -> None:
    """A model that cannot design voices names the models that can."""
    codec = load_codec(REFERENCE / "base-0b6")
    with pytest.raises(InvalidRequestError, match="try 1.7B CustomVoice or VoiceDesign"):
        design_voice(load_tiny("base-0b6"), codec, "An old sailor", "Ahoy!", None, 0)
