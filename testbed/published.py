"""JSON files of the published models: their sizes, ids and settings.

Source: config.json, generation_config.json and preprocessor_config.json of the five Qwen3-TTS-12Hz
models and of their codec, and of Qwen3-ForcedAligner-0.6B.
"""

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["custom_voice", "voice_design", "base"]

PREDICTOR: dict[str, Any] = {
    "model_type": "qwen3_tts_talker_code_predictor",
    "vocab_size": 2048,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 5,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 65_536,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000,
    "rope_scaling": None,
    "attention_bias": False,
    "attention_dropout": 0,
    "use_sliding_window": False,
    "sliding_window": None,
    "layer_types": ["full_attention"] * 5,
    "num_code_groups": 16,
    "use_cache": True,
}
TALKER: dict[str, Any] = {
    "model_type": "qwen3_tts_talker",
    "vocab_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000,
    "rope_scaling": {
        "interleaved": True,
        "mrope_section": [24, 20, 20],
        "rope_type": "default",
        "type": "default",
    },
    "attention_bias": False,
    "attention_dropout": 0,
    "use_sliding_window": False,
    "sliding_window": None,
    "num_code_groups": 16,
    "text_hidden_size": 2048,
    "text_vocab_size": 151_936,
    "codec_pad_id": 2148,
    "codec_bos_id": 2149,
    "codec_eos_token_id": 2150,
    "codec_think_id": 2154,
    "codec_nothink_id": 2155,
    "codec_think_bos_id": 2156,
    "codec_think_eos_id": 2157,
    "codec_language_id": {
        "chinese": 2055,
        "english": 2050,
        "german": 2053,
        "italian": 2070,
        "portuguese": 2071,
        "spanish": 2054,
        "japanese": 2058,
        "korean": 2064,
        "french": 2061,
        "russian": 2069,
        "beijing_dialect": 2074,
        "sichuan_dialect": 2062,
    },
    "spk_id": {},
    "spk_is_dialect": {},
    "use_cache": True,
}
SPEAKERS = {
    "serena": 3066,
    "vivian": 3065,
    "uncle_fu": 3010,
    "ryan": 3061,
    "aiden": 2861,
    "ono_anna": 2873,
    "sohee": 2864,
    "eric": 2875,
    "dylan": 2878,
}
DIALECTS = {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}
CODEC: dict[str, Any] = {
    "architectures": ["Qwen3TTSTokenizerV2Model"],
    "model_type": "qwen3_tts_tokenizer_12hz",
    "encoder_valid_num_quantizers": 16,
    "input_sample_rate": 24_000,
    "output_sample_rate": 24_000,
    "encode_downsample_rate": 1920,
    "decode_upsample_rate": 1920,
    "decoder_config": {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "codebook_dim": 512,
        "codebook_size": 2048,
        "decoder_dim": 1536,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "latent_dim": 1024,
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": 8000,
        "num_attention_heads": 16,
        "num_hidden_layers": 8,
        "num_key_value_heads": 16,
        "num_quantizers": 16,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000,
        "sliding_window": 72,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
    },
    "encoder_config": {
        "model_type": "mimi",
        "_frame_rate": 12.5,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "audio_channels": 1,
        "codebook_dim": 256,
        "codebook_size": 2048,
        "compress": 2,
        "dilation_growth_rate": 2,
        "head_dim": 64,
        "hidden_act": "gelu",
        "hidden_size": 512,
        "intermediate_size": 2048,
        "kernel_size": 7,
        "last_kernel_size": 3,
        "layer_scale_initial_scale": 0.01,
        "max_position_embeddings": 8000,
        "norm_eps": 1e-5,
        "num_attention_heads": 8,
        "num_filters": 64,
        "num_hidden_layers": 8,
        "num_key_value_heads": 8,
        "num_quantizers": 32,
        "num_residual_layers": 1,
        "num_semantic_quantizers": 1,
        "pad_mode": "constant",
        "residual_kernel_size": 3,
        "rope_theta": 10_000.0,
        "sampling_rate": 24_000,
        "sliding_window": 250,
        "trim_right_ratio": 1.0,
        "upsample_groups": 512,
        "upsampling_ratios": [8, 6, 5, 4],
        "use_cache": False,
        "use_causal_conv": True,
        "use_conv_shortcut": False,
        "use_streaming": False,
        "vector_quantization_hidden_dimension": 256,
    },
}
GENERATION: dict[str, Any] = {
    "do_sample": True,
    "repetition_penalty": 1.05,
    "temperature": 0.9,
    "top_p": 1.0,
    "top_k": 50,
    "subtalker_dosample": True,
    "subtalker_temperature": 0.9,
    "subtalker_top_p": 1.0,
    "subtalker_top_k": 50,
    "max_new_tokens": 8192,
}
PREPROCESSOR = {"processor_class": "Qwen3TTSProcessor", "padding_side": "left"}
CODEC_PREPROCESSOR = {
    "feature_extractor_type": "EncodecFeatureExtractor",
    "feature_size": 1,
    "sampling_rate": 24_000,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
    "chunk_length_s": None,
    "overlap": None,
}

ALIGNER: dict[str, Any] = {
    "architectures": ["Qwen3ASRForTokenClassification"],
    "audio_config": {
        "model_type": "qwen3_asr_encoder",
        "num_mel_bins": 128,
        "d_model": 1024,
        "encoder_layers": 24,
        "encoder_attention_heads": 16,
        "encoder_ffn_dim": 4096,
        "output_dim": 1024,
        "n_window": 50,
        "n_window_infer": 800,
        "downsample_hidden_size": 480,
    },
    "text_config": {
        "model_type": "qwen3",
        "vocab_size": 152_064,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 65_536,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000},
        "tie_word_embeddings": True,
    },
    "num_labels": 5000,
    "audio_token_id": 151_676,
    "timestamp_token_id": 151_705,
}
"""config.json of Qwen3-ForcedAligner-0.6B, in the layout of transformers."""
ALIGNER_TOKENS = {
    0: "<|endoftext|>",
    1: "<|im_start|>",
    2: "<|im_end|>",
    26: "<|audio_start|>",
    27: "<|audio_end|>",
    33: "<|audio_pad|>",
    62: "<timestamp>",
}
"""Control tokens of the aligner, by their position after the vocabulary."""
ALIGNER_TEMPLATE = (
    "{%- set ns = namespace(audio='', words=[]) -%}"
    "{%- for message in messages -%}{%- for part in message.content -%}"
    "{%- if part.type == 'audio' -%}"
    "{%- set ns.audio = ns.audio + '<|audio_start|><|audio_pad|><|audio_end|>' -%}"
    "{%- elif part.type == 'text' -%}"
    "{%- set ns.words = ns.words + [part.text] -%}"
    "{%- endif -%}{%- endfor -%}{%- endfor -%}"
    "{{- ns.audio + ns.words | join('<timestamp><timestamp>') + '<timestamp><timestamp>' -}}"
)
"""Chat template of the aligner: the audio, then words with placeholders for their times."""


@dataclass(frozen=True, slots=True)
class Size:
    """Values that differ between the published sizes."""

    tts_model_size: str
    hidden_size: int
    intermediate_size: int


SIZES = {"0.6b": Size("0b6", 1024, 3072), "1.7b": Size("1b7", 2048, 6144)}


def model_config(size: Size, kind: Kind) -> dict[str, Any]:
    """Return config.json of a published model of this size and kind."""
    talker = TALKER | {
        "hidden_size": size.hidden_size,
        "intermediate_size": size.intermediate_size,
        "code_predictor_config": PREDICTOR,
    }
    if kind == "custom_voice":
        dialects = {speaker: DIALECTS.get(speaker, False) for speaker in SPEAKERS}
        talker |= {"spk_id": SPEAKERS, "spk_is_dialect": dialects}
    return {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_type": kind,
        "tts_model_size": size.tts_model_size,
        "speaker_encoder_config": {"enc_dim": size.hidden_size, "sample_rate": 24_000},
        "im_start_token_id": 151_644,
        "im_end_token_id": 151_645,
        "tts_pad_token_id": 151_671,
        "tts_bos_token_id": 151_672,
        "tts_eos_token_id": 151_673,
        "talker_config": talker,
    }
