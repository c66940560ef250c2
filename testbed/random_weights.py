"""The published sizes, and a codec's decoder of any size with random weights.

Source: sizes of Qwen3-TTS-12Hz-1.7B-CustomVoice and of its codec.
"""

import torch

from voiceagent_tts.model.checkpoint import building
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.config import (
    CodecDecoderConfig,
    CodePredictorConfig,
    ModelConfig,
    TalkerConfig,
)
from voiceagent_tts.model.layers import Weights

_ONES = ("norm.weight", "cluster_usage")
_SPREAD = 0.02

PUBLISHED = ModelConfig(
    model_type="qwen3_tts",
    tokenizer_type="qwen3_tts_tokenizer_12hz",
    tts_model_type="custom_voice",
    tts_model_size="1b7",
    talker_config=TalkerConfig(
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=3072,
        num_code_groups=16,
        rope_theta=1e6,
        text_hidden_size=2048,
        text_vocab_size=151_936,
        codec_bos_id=2149,
        codec_eos_token_id=2150,
        codec_pad_id=2148,
        codec_think_id=2154,
        codec_nothink_id=2155,
        codec_think_bos_id=2156,
        codec_think_eos_id=2157,
        code_predictor_config=CodePredictorConfig(
            hidden_size=1024,
            intermediate_size=3072,
            num_hidden_layers=5,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=128,
            vocab_size=2048,
            num_code_groups=16,
            rope_theta=1e6,
        ),
    ),
)
PUBLISHED_CODEC = CodecDecoderConfig(hidden_size=512, intermediate_size=1024)


def untrained_decoder(config: CodecDecoderConfig, device: torch.device) -> CodecDecoder:
    """Build the codec's decoder with random weights, in float32."""
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
