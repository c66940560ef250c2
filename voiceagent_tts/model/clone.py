"""Reference audio becomes a voice of a Base model; so does a description, by way of VoiceDesign.

What a prompt needs of a voice is computed once, here. Knows no files of sound and no names of
voices.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.model.checkpoint import building, fill, open_weights
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.codec_encoder import CodecEncoder
from voiceagent_tts.model.config import read_model_config
from voiceagent_tts.model.prompt import Cloned
from voiceagent_tts.model.speaker_encoder import SpeakerEncoder

TAIL_SILENCE_S = 0.5
"""Behind a reference that ends in the middle of a sound, the model goes on with that sound: its
last phoneme or word would be heard again before the text."""


@dataclass(frozen=True, slots=True)
class Cloner:
    """What hears references for one Base model.

    Attributes:
        speaker_encoder: the model's.
        codec_encoder: of the model's codec.
    """

    speaker_encoder: SpeakerEncoder
    codec_encoder: CodecEncoder

    def hear(
        self, samples: Tensor, text: str = "", tail_silence_s: float = TAIL_SILENCE_S
    ) -> Cloned:
        """Hear a reference.

        Args:
            samples: [S] float32 in [-1, 1], mono, 24 kHz.
            text: what the reference says; empty clones by the speaker embedding alone, which keeps
                the timbre but not the manner.
            tail_silence_s: silence that the codec hears behind the reference.

        Returns:
            The voice, on the CPU.

        Raises:
            InvalidRequestError: the reference is too short.
        """
        embedding = self.speaker_encoder.embed(samples).cpu()
        if not text.strip():
            return Cloned(embedding)
        heard = F.pad(samples, (0, round(tail_silence_s * SAMPLE_RATE_HZ)))
        with torch.inference_mode():
            codes = self.codec_encoder.encode(heard)
        return Cloned(embedding, codes.cpu(), text.strip())


def load_cloner(folder: Path) -> Cloner:
    """Load the encoders of a Base model, and not the model, on the CPU.

    Raises:
        CheckpointError: a file is missing, partial or of a kind that this network can not compute.
        InvalidRequestError: the model is no Base model.
    """
    config = read_model_config(folder)
    if not config.has_speaker_encoder:
        raise InvalidRequestError(
            f"{folder}: is a {config.tts_model_type} model, which clones no voices; a Base model "
            "does",
            code=ErrorCode.INVALID_PARAM,
        )
    with building(torch.float32, torch.device("cpu")):
        speaker_encoder = SpeakerEncoder(config.speaker_encoder_config)
    fill(speaker_encoder.weights(), open_weights(folder), folder)
    codec_encoder = load_codec(folder, has_encoder=True).encoder
    assert codec_encoder is not None
    return Cloner(speaker_encoder, codec_encoder)
