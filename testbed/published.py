"""JSON files of the published models: their sizes, ids and settings, from `published.json`.

Source: config.json, generation_config.json and preprocessor_config.json of the five Qwen3-TTS-12Hz
models and of their codec, and of Qwen3-ForcedAligner-0.6B.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["custom_voice", "voice_design", "base"]

_PUBLISHED = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))

PREDICTOR: dict[str, Any] = _PUBLISHED["predictor"]
TALKER: dict[str, Any] = _PUBLISHED["talker"]
SPEAKERS: dict[str, int] = _PUBLISHED["speakers"]
DIALECTS: dict[str, str] = _PUBLISHED["dialects"]
CODEC: dict[str, Any] = _PUBLISHED["codec"]
GENERATION: dict[str, Any] = _PUBLISHED["generation"]
PREPROCESSOR: dict[str, Any] = _PUBLISHED["preprocessor"]
CODEC_PREPROCESSOR: dict[str, Any] = _PUBLISHED["codec_preprocessor"]
ALIGNER: dict[str, Any] = _PUBLISHED["aligner"]
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
