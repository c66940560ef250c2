"""Clone a voice for a Base model from reference audio.

Everything that a prompt needs from a voice is computed once, here. The reference may also be speech
of a VoiceDesign model. Knows no audio files and no voice names.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.model.checkpoint import building, fill, open_weights
from voiceagent_tts.model.config import read_model_config
from voiceagent_tts.model.prompt import Cloned
from voiceagent_tts.plugins.recordings.codec_encoder import CodecEncoder, load_codec_encoder
from voiceagent_tts.plugins.recordings.speaker_encoder import SpeakerEncoder

TAIL_SILENCE_S = 0.5
"""Silence appended to the reference. Without it, a reference that ends within a sound makes the
model continue that sound: its last phoneme or word would be audible before the text."""


@dataclass(frozen=True, slots=True)
class ReferenceEncoder:
    """Encodes reference recordings for one Base model: each becomes a voice."""

    speaker_encoder: SpeakerEncoder
    codec_encoder: CodecEncoder

    def clone(
        self, samples: Tensor, text: str = "", tail_silence_s: float = TAIL_SILENCE_S
    ) -> Cloned:
        """Clone the voice of a reference recording.

        Args:
            samples: [S] float32 in [-1, 1], mono, 24 kHz.
            text: transcript of the reference. An empty text clones by the speaker embedding alone,
                which keeps the timbre but not the manner of speaking.
            tail_silence_s: seconds of silence appended to the reference before encoding.

        Returns:
            The voice, with tensors on the CPU.

        Raises:
            InvalidRequestError: the reference is too short.
        """
        embedding = self.speaker_encoder.embed(samples).cpu()
        if not text.strip():
            return Cloned(embedding)
        padded = F.pad(samples, (0, round(tail_silence_s * SAMPLE_RATE_HZ)))
        with torch.inference_mode():
            codes = self.codec_encoder.encode(padded)
        return Cloned(embedding, codes.cpu(), text.strip())


def clone_voice(folder: Path, samples: Tensor, text: str = "") -> Cloned:
    """Clone one voice, with only the encoders that this takes.

    Without a transcript, the codec's encoder is not loaded, which takes seconds.

    Raises:
        CheckpointError: a file is missing, incomplete, or not supported by this network.
        InvalidRequestError: the model is not a Base model, or the reference is too short.
    """
    if text.strip():
        return load_reference_encoder(folder).clone(samples, text)
    return Cloned(load_speaker_encoder(folder).embed(samples))


def load_speaker_encoder(folder: Path, device: torch.device | str = "cpu") -> SpeakerEncoder:
    """Load only the speaker encoder of a Base model, in float32.

    Raises:
        CheckpointError: a file is missing, incomplete, or not supported by this network.
        InvalidRequestError: the model is not a Base model.
    """
    config = read_model_config(folder)
    if not config.has_speaker_encoder:
        raise InvalidRequestError(
            f"{folder}: expected a Base model to clone a voice, got a {config.tts_model_type} "
            "model",
            code=ErrorCode.INVALID_PARAM,
        )
    with building(torch.float32, torch.device(device)):
        speaker_encoder = SpeakerEncoder(config.speaker_encoder_config)
    fill(speaker_encoder.weights(), open_weights(folder), folder)
    return speaker_encoder


def load_reference_encoder(folder: Path, device: torch.device | str = "cpu") -> ReferenceEncoder:
    """Load only the encoders of a Base model.

    Raises:
        CheckpointError: a file is missing, incomplete, or not supported by this network.
        InvalidRequestError: the model is not a Base model.
    """
    return ReferenceEncoder(
        load_speaker_encoder(folder, device), load_codec_encoder(folder, device)
    )
