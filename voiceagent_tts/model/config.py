"""The JSON configuration of a checkpoint as dataclasses.

Fields have the names of the JSON keys, so that a search finds both. Values that this network does
not support (another codec, another activation, scaled positions) are errors that name the file and
the key. Keys without effect on inference are ignored.

Source: config.json, generation_config.json and speech_tokenizer/config.json of the published
Qwen3-TTS-12Hz models; defaults are those of qwen-tts 0.1.1.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ
from voiceagent_tts.errors import CheckpointError

CODEC_FOLDER = "speech_tokenizer"
"""Subfolder of a model that contains its codec."""


class _Bound:
    """Limits of a number in a file. Configurations built in memory need no pydantic."""

    def __init__(self, **limits: float) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(source) | self._limits


Size = Annotated[int, _Bound(gt=0)]
TokenId = Annotated[int, _Bound(ge=0)]
_Count = Annotated[int, _Bound(ge=0)]
_Positive = Annotated[float, _Bound(gt=0)]
_Share = Annotated[float, _Bound(gt=0, le=1)]
_Config = TypeVar("_Config")


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Scaling of the rotary positions; only the unscaled default is supported.

    The talker's `mrope_section` assigns parts of a head to temporal, height and width positions.
    For text and speech the three positions are equal, so any split is plain RoPE.
    """

    rope_type: Literal["default"] = "default"
    type: Literal["default"] = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig:
    """Sizes shared by talker and code predictor: a Qwen3 decoder without dropout and biases."""

    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    num_key_value_heads: Size
    head_dim: Size
    vocab_size: Size
    num_code_groups: Size
    """Number of codebooks (codes per frame)."""
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    max_position_embeddings: Size = 32_768
    rope_scaling: RopeScaling | None = None
    hidden_act: Literal["silu"] = "silu"
    attention_bias: Literal[False] = False
    use_sliding_window: Literal[False] = False

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads {self.num_attention_heads} is not a multiple of "
                f"num_key_value_heads {self.num_key_value_heads}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePredictorConfig(TransformerConfig):
    """The small transformer that emits codebooks 1 and up; `vocab_size` is the size of a codebook.

    Its input has one position for the talker's hidden state and one for each code but the last.
    """

    model_type: Literal["qwen3_tts_talker_code_predictor"] = "qwen3_tts_talker_code_predictor"


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkerConfig(TransformerConfig):
    """The transformer that emits codebook 0; `vocab_size` counts its codes and its control ids.

    Attributes:
        spk_id: speaker (lower case) -> row of the codec embedding.
        spk_is_dialect: speaker -> dialect that the speaker uses for Chinese, or False.
        codec_language_id: language or dialect (lower case) -> codec id.
    """

    code_predictor_config: CodePredictorConfig
    text_hidden_size: Size
    text_vocab_size: Size
    codec_bos_id: TokenId
    codec_eos_token_id: TokenId
    codec_pad_id: TokenId
    codec_think_id: TokenId
    codec_nothink_id: TokenId
    codec_think_bos_id: TokenId
    codec_think_eos_id: TokenId
    spk_id: dict[str, TokenId] = field(default_factory=dict[str, int])
    spk_is_dialect: dict[str, str | Literal[False]] = field(default_factory=dict[str, Any])
    codec_language_id: dict[str, TokenId] = field(default_factory=dict[str, int])
    model_type: Literal["qwen3_tts_talker"] = "qwen3_tts_talker"

    def __post_init__(self) -> None:
        TransformerConfig.__post_init__(self)
        predictor = self.code_predictor_config
        if predictor.num_code_groups != self.num_code_groups:
            raise ValueError(
                f"num_code_groups is {self.num_code_groups} here and "
                f"{predictor.num_code_groups} in code_predictor_config"
            )
        for speaker, dialect in self.spk_is_dialect.items():
            if dialect and dialect not in self.codec_language_id:
                raise ValueError(
                    f"spk_is_dialect gives {speaker} the dialect {dialect}, "
                    "which codec_language_id lacks"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerEncoderConfig:
    """The ECAPA-TDNN that turns a mel spectrogram into a speaker embedding (Base models)."""

    mel_dim: Size = 128
    enc_dim: Size = 1024
    enc_channels: tuple[Size, ...] = (512, 512, 512, 512, 1536)
    enc_kernel_sizes: tuple[Size, ...] = (5, 3, 3, 3, 1)
    enc_dilations: tuple[Size, ...] = (1, 2, 3, 4, 1)
    enc_attention_channels: Size = 128
    enc_res2net_scale: Size = 8
    enc_se_channels: Size = 128
    sample_rate: Literal[24_000] = SAMPLE_RATE_HZ

    def __post_init__(self) -> None:
        if not len(self.enc_channels) == len(self.enc_kernel_sizes) == len(self.enc_dilations):
            raise ValueError("enc_channels, enc_kernel_sizes and enc_dilations differ in length")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """config.json of a Qwen3-TTS-12Hz model."""

    talker_config: TalkerConfig
    tts_model_type: Literal["custom_voice", "voice_design", "base"]
    tts_model_size: str
    """`0b6` or `1b7`; a fine-tuned model keeps the size of its base model."""
    model_type: Literal["qwen3_tts"]
    tokenizer_type: Literal["qwen3_tts_tokenizer_12hz"]
    speaker_encoder_config: SpeakerEncoderConfig = field(default_factory=SpeakerEncoderConfig)
    im_start_token_id: TokenId = 151_644
    im_end_token_id: TokenId = 151_645
    tts_pad_token_id: TokenId = 151_671
    tts_bos_token_id: TokenId = 151_672
    tts_eos_token_id: TokenId = 151_673

    @property
    def has_speaker_encoder(self) -> bool:
        """Whether this model can clone voices: only Base models can."""
        return self.tts_model_type == "base"

    @property
    def takes_instruct(self) -> bool:
        """Whether the model follows a description of voice or style; 0.6B and Base do not."""
        return self.tts_model_type == "voice_design" or (
            self.tts_model_type == "custom_voice" and self.tts_model_size != "0b6"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig:
    """generation_config.json: the default sampling settings of a model."""

    do_sample: bool = True
    temperature: _Positive = 0.9
    top_k: _Count = 50
    top_p: _Share = 1.0
    repetition_penalty: _Positive = 1.05
    subtalker_dosample: bool = True
    subtalker_temperature: _Positive = 0.9
    subtalker_top_k: _Count = 50
    subtalker_top_p: _Share = 1.0
    max_new_tokens: Size = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecDecoderConfig:
    """Sizes of the codec's decoder (codes to samples). Every convolution is causal.

    Attributes:
        sliding_window: attention window in frames, including the current one.
        upsampling_ratios: ratios of the convolutions between transformer and decoder blocks.
        upsample_rates: ratios of the decoder blocks. The product of both lists is the number of
            samples per frame.
    """

    codebook_size: Size = 2048
    codebook_dim: Size = 512
    hidden_size: Size = 1024
    latent_dim: Size = 1024
    intermediate_size: Size = 3072
    num_hidden_layers: Size = 8
    num_attention_heads: Size = 16
    num_key_value_heads: Size = 16
    head_dim: Size = 64
    sliding_window: Size = 72
    num_quantizers: Size = 16
    upsample_rates: tuple[Size, ...] = (8, 5, 4, 3)
    upsampling_ratios: tuple[Size, ...] = (2, 2)
    decoder_dim: Size = 1536
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    hidden_act: Literal["silu"] = "silu"
    attention_bias: Literal[False] = False

    def __post_init__(self) -> None:
        samples = 1
        for rate in (*self.upsample_rates, *self.upsampling_ratios):
            samples *= rate
        if samples != FRAME_SAMPLES:
            raise ValueError(
                f"upsample_rates and upsampling_ratios make {samples} samples of a frame, "
                f"expected {FRAME_SAMPLES}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecConfig:
    """config.json of the codec (Qwen3-TTS-Tokenizer-12Hz)."""

    model_type: Literal["qwen3_tts_tokenizer_12hz"]
    decoder_config: CodecDecoderConfig
    encoder_config: dict[str, Any]
    """Arguments of `transformers.MimiConfig`."""
    encoder_valid_num_quantizers: Size = 16
    input_sample_rate: Literal[24_000] = SAMPLE_RATE_HZ
    output_sample_rate: Literal[24_000] = SAMPLE_RATE_HZ
    decode_upsample_rate: Literal[1920] = FRAME_SAMPLES
    encode_downsample_rate: Literal[1920] = FRAME_SAMPLES


def read_model_config(folder: Path) -> ModelConfig:
    """Read config.json of a model.

    Raises:
        CheckpointError: the file is missing, is not JSON, or has a value that is not supported.
    """
    return _read(ModelConfig, folder / "config.json")


def read_generation_config(folder: Path) -> GenerationConfig:
    """Read generation_config.json of a model; raises as `read_model_config`."""
    return _read(GenerationConfig, folder / "generation_config.json")


def read_codec_config(folder: Path) -> CodecConfig:
    """Read config.json of a codec's own folder; raises as `read_model_config`."""
    return _read(CodecConfig, folder / "config.json")


def _read(kind: type[_Config], path: Path) -> _Config:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_json(path.read_bytes(), strict=True)
    except OSError as error:
        raise CheckpointError(f"{path}: expected a file; {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "the whole file"
        got = "" if first["type"] == "missing" else f", got {_shortened(first['input'])}"
        raise CheckpointError(f"{path}: {key}: {first['msg']}{got}") from error


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
