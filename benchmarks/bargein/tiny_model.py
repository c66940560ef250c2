"""A Qwen3-TTS checkpoint small enough for eight concurrent contexts on two cores.

It has the layout and vocabularies of a published model, but random weights: it speaks noise.
"""

from pathlib import Path
from typing import Any

from testbed.checkpoint import write_checkpoint
from testbed.published import CODEC, PREDICTOR, SIZES, model_config

VOICE = "vivian"
_ATTENTION = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
_TALKER = {
    **_ATTENTION,
    "hidden_size": 32,
    "intermediate_size": 64,
    "head_dim": 16,
    "text_hidden_size": 32,
    "rope_scaling": {
        "interleaved": True,
        "mrope_section": [4, 2, 2],
        "rope_type": "default",
        "type": "default",
    },
}
_PREDICTOR = {
    **_ATTENTION,
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "intermediate_size": 64,
    "head_dim": 16,
    "layer_types": ["full_attention"],
}
_DECODER = {
    **_ATTENTION,
    "hidden_size": 16,
    "intermediate_size": 32,
    "head_dim": 8,
    "latent_dim": 32,
    "decoder_dim": 48,
    "codebook_dim": 16,
}
_ENCODER = {
    **_ATTENTION,
    "hidden_size": 32,
    "intermediate_size": 64,
    "head_dim": 8,
    "num_filters": 4,
    "codebook_dim": 16,
    "vector_quantization_hidden_dimension": 16,
    "upsample_groups": 32,
}


def write_tiny_model(folder: Path) -> None:
    """Create `folder` with the checkpoint; the files are identical every time."""
    model: dict[str, Any] = model_config(SIZES["0.6b"], "custom_voice")
    predictor = PREDICTOR | _PREDICTOR
    model["talker_config"] |= _TALKER | {"code_predictor_config": predictor}
    codec = CODEC | {
        "decoder_config": CODEC["decoder_config"] | _DECODER,
        "encoder_config": CODEC["encoder_config"] | _ENCODER,
    }
    write_checkpoint(folder, model, codec, seed=0)
