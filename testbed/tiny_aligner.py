"""Write a tiny forced aligner with random weights, in the layout of the published one."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers.pre_tokenizers import ByteLevel

from testbed.published import ALIGNER, ALIGNER_TEMPLATE, ALIGNER_TOKENS
from voiceagent_tts.garbage import without_collection

_FIRST_CONTROL = 1000

CONFIG: dict[str, Any] = ALIGNER | {
    "audio_config": ALIGNER["audio_config"]
    | {
        "d_model": 64,
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "output_dim": 64,
        "downsample_hidden_size": 16,
    },
    "text_config": ALIGNER["text_config"]
    | {
        "vocab_size": _FIRST_CONTROL + max(ALIGNER_TOKENS) + 1,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "pad_token_id": 0,
    },
    "num_labels": 80,
    "audio_token_id": _FIRST_CONTROL + 33,
    "timestamp_token_id": _FIRST_CONTROL + 62,
    "pad_token_id": 0,
}
"""config.json of an aligner with two layers of width 64 in each part, and times up to 6.4 s."""


def write_tiny_aligner(folder: Path) -> Path:
    """Write a folder for `load_aligner`; takes 0.1 s and a megabyte."""
    # Imported here: it takes seconds.
    with without_collection():
        from transformers import (
            Qwen2Tokenizer,
            Qwen3ASRConfig,
            Qwen3ASRFeatureExtractor,
            Qwen3ASRForTokenClassification,
            Qwen3ASRProcessor,
        )

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_asr", **CONFIG}))
    tokenizer = Qwen2Tokenizer(
        _vocabulary(),
        [],  # type: ignore[arg-type]
        eos_token="<|im_end|>",
        audio_token="<|audio_pad|>",
        audio_bos_token="<|audio_start|>",
        audio_eos_token="<|audio_end|>",
        extra_special_tokens=list(ALIGNER_TOKENS.values()),
    )
    features = Qwen3ASRFeatureExtractor()
    processor = Qwen3ASRProcessor(features, tokenizer, chat_template=ALIGNER_TEMPLATE)
    processor.save_pretrained(folder)
    generator = torch.Generator().manual_seed(0)
    with torch.device("meta"):
        network = Qwen3ASRForTokenClassification(Qwen3ASRConfig(**CONFIG))
    tensors = {
        key: torch.ones(tensor.shape) if key.endswith(("norm.weight", "ln_post.weight"))
        else 0.02 * torch.randn(tensor.shape, generator=generator)
        for key, tensor in network.state_dict().items()
    }  # fmt: skip
    tensors = {key: tensor.bfloat16() for key, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def _vocabulary() -> dict[str, int]:
    """Bytes, unused tokens, and control tokens, whose numbers their places fix."""
    tokens = sorted(ByteLevel.alphabet())
    tokens += [f"<unused {number}>" for number in range(len(tokens), _FIRST_CONTROL)]
    tokens += [ALIGNER_TOKENS.get(n, f"<unused {_FIRST_CONTROL + n}>") for n in range(63)]
    return {token: number for number, token in enumerate(tokens)}
