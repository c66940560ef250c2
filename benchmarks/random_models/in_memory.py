"""Build a CustomVoice model of any size with random weights, in memory only.

It loads wherever a model's folder loads. The cost of a step does not depend on the values of the
weights, so timings are representative; the audio is noise. Each tensor is drawn from its own seed,
so every load of a model, in any precision and on any device, has equal weights. The end-of-speech
code is as unlikely as the median code. Needs torch, numpy and tokenizers only.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import torch
from torch import Tensor

from benchmarks.random_models.tiny import TINY_CODEC, tiny_model
from benchmarks.random_models.vocabulary import write_tokenizer
from testbed.published import CODEC, GENERATION, SIZES, model_config
from voiceagent_tts.model.attention import AttentionBackend
from voiceagent_tts.model.checkpoint import Checkpoint, build_network, building
from voiceagent_tts.model.codec import Codec
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.config import CodecConfig, GenerationConfig, ModelConfig
from voiceagent_tts.model.layers import Kernels, Weights
from voiceagent_tts.model.tokenizer import Tokenizer

_HEAD = "talker.codec_head.weight"
_ONES = ("norm.weight", "ln_post.weight", "cluster_usage", "initialized")
_SPREAD = 0.02
_Config = TypeVar("_Config")


def random_tensor(
    key: str, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> Tensor:
    """Draw small normal numbers; ones for norms and counts, so that signals keep their size.

    Args:
        key: name of the tensor in a checkpoint.
        shape: of the tensor.
        dtype: of the tensor.
        generator: source of the numbers, on the device of the result.
    """
    if key.endswith(_ONES):
        return torch.ones(shape, dtype=dtype, device=generator.device)
    numbers = torch.empty(shape, dtype=dtype, device=generator.device)
    return numbers.normal_(0, _SPREAD, generator=generator)


def config_of(kind: type[_Config], values: Mapping[str, Any]) -> _Config:
    """Make a configuration of the values of its JSON; unknown keys are ignored."""
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind) if field.name in values]  # type: ignore[arg-type]
    return kind(**{name: _value(hints[name], values[name]) for name in names})


def _value(hint: Any, value: Any) -> Any:
    kinds = [kind for kind in (hint, *get_args(hint)) if is_dataclass(kind)]
    if kinds and isinstance(value, Mapping):
        return config_of(kinds[0], value)  # type: ignore[arg-type]
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class RandomModel:
    """A model of random weights.

    Attributes:
        name: for logs and reports.
        model: config.json of the model.
        codec_json: config.json of its codec.
        tokenizer_folder: folder of the tokenizer's files, which are made if it does not exist.
        device: device that draws the numbers; a GPU takes seconds, a CPU minutes.
    """

    name: str
    model: Mapping[str, Any]
    codec_json: Mapping[str, Any]
    tokenizer_folder: Path
    device: str = "cpu"

    @property
    def config(self) -> ModelConfig:
        """Configuration of talker and code predictor."""
        return config_of(ModelConfig, self.model)

    @property
    def codec_config(self) -> CodecConfig:
        """Configuration of the codec."""
        return config_of(CodecConfig, self.codec_json)

    def checkpoint(
        self, dtype: torch.dtype, device: torch.device, backend: AttentionBackend, kernels: Kernels
    ) -> Checkpoint:
        """Make talker and code predictor."""
        network = build_network(self.config, dtype, device, backend, kernels)
        self._fill(network.weights(), torch.bfloat16)
        network.code_predictor.fold(network.talker.codec_embedding)
        generation = config_of(GenerationConfig, GENERATION)
        return Checkpoint(self.config, generation, self._tokenizer(), network)

    def codec(self, device: torch.device) -> Codec:
        """Make the codec's decoder."""
        with building(torch.float32, device):
            decoder = CodecDecoder(self.codec_config.decoder_config)
        self._fill(decoder.weights(), torch.float32)
        return Codec(self.codec_config, decoder)

    def _fill(self, weights: Weights, dtype: torch.dtype) -> None:
        generator = torch.Generator(self.device)
        for key, target in weights:
            generator.manual_seed(zlib.crc32(key.encode()))
            numbers = random_tensor(key, tuple(target.shape), dtype, generator)
            if key == _HEAD:
                numbers[self.config.talker_config.codec_eos_token_id] = 0
            target.copy_(numbers)

    def _tokenizer(self) -> Tokenizer:
        folder = self.tokenizer_folder
        if not folder.exists():
            partial = folder.with_name(f"{folder.name}.partial")
            partial.mkdir(parents=True, exist_ok=True)
            write_tokenizer(partial, self.config)
            partial.rename(folder)
        return Tokenizer(folder, self.config.im_start_token_id, self.config.im_end_token_id)


def published_random_model(size: str, folder: Path, device: str) -> RandomModel:
    """Return a random model of a published size (`0.6b` or `1.7b`).

    Args:
        size: key of `SIZES`.
        folder: folder for the tokenizer's files.
        device: device that draws the numbers.
    """
    config = model_config(SIZES[size], "custom_voice")
    return RandomModel(f"random-{size}", config, CODEC, folder / "tokenizer", device)


def tiny_random_model(folder: Path) -> RandomModel:
    """Return a tiny random model for CPUs; `folder` is for the tokenizer's files."""
    return RandomModel("tiny", tiny_model(), TINY_CODEC, folder / "tiny-tokenizer")
