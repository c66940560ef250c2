"""Models with random weights of the published size."""

import torch
from pydantic import TypeAdapter

from testbed.checkpoint import META
from testbed.published import CODEC, SIZES, model_config
from testbed.random_weights import PUBLISHED, PUBLISHED_CODEC
from voiceagent_tts.model.checkpoint import build_network
from voiceagent_tts.model.config import CodecConfig, ModelConfig


def test_sizes_are_the_published() -> None:
    """Every tensor of talker and code predictor has the shape of the published 1.7B model."""
    published = TypeAdapter(ModelConfig).validate_python(
        model_config(SIZES["1.7b"], "custom_voice")
    )
    ours, theirs = (
        {key: tensor.shape for key, tensor in network.weights()}
        for network in (
            build_network(config, torch.bfloat16, META, "sdpa") for config in (PUBLISHED, published)
        )
    )
    assert ours == theirs
    assert TypeAdapter(CodecConfig).validate_python(CODEC).decoder_config == PUBLISHED_CODEC
