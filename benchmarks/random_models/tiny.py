"""Configurations of tiny models for CPUs: the published layouts with a few narrow layers.

A benchmark runs the code paths of the published sizes with them, but its figures are meaningless.
"""

from typing import Any

from testbed.published import CODEC, PREDICTOR, Size, model_config

_CODES = 64
_FIRST_SPECIAL = 356
_SHIFT = PREDICTOR["vocab_size"] - _CODES
"""Offset of the talker's control ids against the published ones."""

_LAYERS: dict[str, Any] = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "layer_types": ["full_attention"] * 2,
}


def tiny_model() -> dict[str, Any]:
    """Return config.json of a CustomVoice model with two layers of width 64."""
    config = model_config(Size("1b7", hidden_size=64, intermediate_size=96), "custom_voice")
    talker = config["talker_config"]
    ids = {key: talker[key] - _SHIFT for key in talker if key.startswith("codec_") and "id" in key
           and isinstance(talker[key], int)}  # fmt: skip
    narrow = {"hidden_size": 48, "intermediate_size": 80, "vocab_size": _CODES}
    talker |= _LAYERS | ids
    talker |= {
        "vocab_size": talker["vocab_size"] - _SHIFT,
        "text_hidden_size": 40,
        "text_vocab_size": 400,
        "codec_language_id": _earlier(talker["codec_language_id"]),
        "spk_id": _earlier(talker["spk_id"]),
        "code_predictor_config": PREDICTOR | _LAYERS | narrow,
    }
    return config | {
        "im_start_token_id": _FIRST_SPECIAL,
        "im_end_token_id": _FIRST_SPECIAL + 1,
        "tts_pad_token_id": _FIRST_SPECIAL + 2,
        "tts_bos_token_id": _FIRST_SPECIAL + 3,
        "tts_eos_token_id": _FIRST_SPECIAL + 4,
    }


def _earlier(ids: dict[str, int]) -> dict[str, int]:
    return {name: id - _SHIFT for name, id in ids.items()}


TINY_CODEC: dict[str, Any] = CODEC | {
    "decoder_config": CODEC["decoder_config"]
    | {
        "codebook_dim": 16,
        "codebook_size": _CODES,
        "decoder_dim": 48,
        "head_dim": 8,
        "hidden_size": 24,
        "intermediate_size": 48,
        "latent_dim": 32,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 4,
        "sliding_window": 8,
    },
    "encoder_config": CODEC["encoder_config"]
    | {
        "codebook_dim": 16,
        "codebook_size": _CODES,
        "head_dim": 8,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_filters": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 4,
        "num_quantizers": 20,
        "sliding_window": 25,
        "upsample_groups": 32,
        "vector_quantization_hidden_dimension": 16,
    },
}
"""config.json of a matching codec."""
