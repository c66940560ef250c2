"""The published sizes, and a codec's decoder of any size with random weights."""

import torch
from pydantic import TypeAdapter

from testbed.published import CODEC, SIZES, model_config
from voiceagent_tts.model.checkpoint import building
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.config import CodecConfig, CodecDecoderConfig, ModelConfig
from voiceagent_tts.model.layers import Weights

_ONES = ("norm.weight", "cluster_usage")
_SPREAD = 0.02

PUBLISHED = TypeAdapter(ModelConfig).validate_python(model_config(SIZES["1.7b"], "custom_voice"))
"""Qwen3-TTS-12Hz-1.7B-CustomVoice."""
PUBLISHED_CODEC = TypeAdapter(CodecConfig).validate_python(CODEC).decoder_config


def untrained_decoder(config: CodecDecoderConfig, device: torch.device) -> CodecDecoder:
    with building(torch.float32, device):
        decoder = CodecDecoder(config)
    _randomize(decoder.weights())
    return decoder


def _randomize(weights: Weights) -> None:
    """Fill weights with small normal numbers; norms and counts with ones to limit the signals."""
    for key, target in weights:
        if key.endswith(_ONES):
            target.fill_(1)
        else:
            target.normal_(0, _SPREAD)
