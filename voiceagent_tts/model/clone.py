"""Reference audio becomes a voice of a Base model: what its prompt needs, computed once.

Knows no files and no names of voices.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.model.codec_encoder import CodecEncoder
from voiceagent_tts.model.prompt import Cloned
from voiceagent_tts.model.speaker_encoder import SpeakerEncoder

TAIL_SILENCE_S = 0.5
"""Behind a reference that ends in the middle of a sound, the model goes on with that sound: its
last phoneme or word would be heard again before the text."""


def clone_voice(
    samples: Tensor,
    speaker_encoder: SpeakerEncoder,
    codec_encoder: CodecEncoder,
    text: str = "",
    tail_silence_s: float = TAIL_SILENCE_S,
) -> Cloned:
    """Hear a reference.

    Args:
        samples: [S] float32 in [-1, 1], mono, 24 kHz.
        speaker_encoder: of the model that will speak.
        codec_encoder: of that model's codec.
        text: what the reference says; empty clones by the speaker embedding alone, which keeps
            the timbre but not the manner.
        tail_silence_s: silence that the codec hears behind the reference.

    Returns:
        The voice, on the CPU.

    Raises:
        InvalidRequestError: the reference is too short.
    """
    embedding = speaker_encoder.embed(samples).cpu()
    if not text.strip():
        return Cloned(embedding)
    heard = F.pad(samples, (0, round(tail_silence_s * SAMPLE_RATE_HZ)))
    device = next(codec_encoder.parameters()).device
    with torch.inference_mode():
        codes = codec_encoder.encode(heard.to(device)).cpu()
    return Cloned(embedding, codes, text.strip())
