"""Build a CustomVoice model of any size with random weights, in memory or in a folder.

It loads wherever a model's folder loads; a folder of it loads in the official package, too. The
cost of a step does not depend on the values of the weights, so timings are representative; the
audio is noise. Each tensor is drawn from its own seed, so every load of a model, in any precision
and on any device, has equal weights. The end-of-speech code is as unlikely as the median code, so
speech usually reaches its frame limit. In memory it needs torch, numpy and tokenizers only. Nothing
is downloaded.
"""

import json
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import torch
from torch import Tensor

from benchmarks.random_models.vocabulary import write_tokenizer
from testbed.published import (
    CODEC,
    CODEC_PREPROCESSOR,
    GENERATION,
    PREPROCESSOR,
    SIZES,
    model_config,
)
from voiceagent_tts.model.attention import AttentionBackend
from voiceagent_tts.model.checkpoint import Checkpoint, build_network, building
from voiceagent_tts.model.codec import Codec
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.config import CODEC_FOLDER, CodecConfig, GenerationConfig, ModelConfig
from voiceagent_tts.model.layers import Kernels, Weights
from voiceagent_tts.model.tokenizer import Tokenizer

_TINY = Path(__file__).parents[2] / "tests" / "reference" / "custom_voice-1b7"
_HEAD = "talker.codec_head.weight"
_ONES = ("norm.weight", "ln_post.weight", "cluster_usage", "initialized")
_SPREAD = 0.02
_META = torch.device("meta")
_Config = TypeVar("_Config")


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

    def ready_folder(self, folder: Path) -> Path:
        """Return `folder`, after writing the model into it if it does not exist."""
        return _ready(folder, self._write)

    def _write(self, folder: Path) -> None:
        from safetensors.torch import save_file

        codec_folder = folder / CODEC_FOLDER
        codec_folder.mkdir()
        for path, value in {
            folder / "config.json": self.model,
            folder / "generation_config.json": GENERATION,
            folder / "preprocessor_config.json": PREPROCESSOR,
            codec_folder / "config.json": self.codec_json,
            codec_folder / "preprocessor_config.json": CODEC_PREPROCESSOR,
        }.items():
            path.write_text(json.dumps(value, ensure_ascii=False, indent=1), "utf-8")
        write_tokenizer(folder, self.config)
        network = build_network(self.config, torch.float32, _META, "sdpa")
        for place, weights, dtype in (
            (folder, network.weights(), torch.bfloat16),
            (codec_folder, self._codec_weights(), torch.float32),
        ):
            tensors = {key: self._random(key, each, dtype).cpu() for key, each in weights}
            save_file(tensors, place / "model.safetensors", {"format": "pt"})

    def _codec_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what a codec's file has, without values: also what only encoding needs."""
        from voiceagent_tts.plugins.recordings.codec_encoder import CodecEncoder

        config = self.codec_config
        with building(torch.float32, _META):
            yield from CodecDecoder(config.decoder_config).weights()
            encoder = CodecEncoder(config.encoder_config, config.encoder_valid_num_quantizers)
            yield from encoder.weights()
        width = config.decoder_config.codebook_dim
        for quantizer in ("rvq_first", "rvq_rest"):
            key = f"decoder.quantizer.{quantizer}.input_proj.weight"
            yield key, torch.empty(width // 2, width, 1, device=_META)

    def _fill(self, weights: Weights, dtype: torch.dtype) -> None:
        for key, target in weights:
            target.copy_(self._random(key, target, dtype))

    def _random(self, key: str, like: Tensor, dtype: torch.dtype) -> Tensor:
        """Draw small normal numbers; ones for norms and counts, so that signals keep their size."""
        numbers = torch.empty(like.shape, dtype=dtype, device=self.device)
        if key.endswith(_ONES):
            return numbers.fill_(1)
        generator = torch.Generator(self.device).manual_seed(zlib.crc32(key.encode()))
        numbers.normal_(0, _SPREAD, generator=generator)
        if key == _HEAD:
            numbers[self.config.talker_config.codec_eos_token_id] = 0
        return numbers

    def _tokenizer(self) -> Tokenizer:
        write = partial(write_tokenizer, config=self.config)
        folder = _ready(self.tokenizer_folder, write)
        return Tokenizer(folder, self.config.im_start_token_id, self.config.im_end_token_id)


def _ready(folder: Path, write: Callable[[Path], None]) -> Path:
    """Return a folder, written if it does not exist.

    It appears only when complete, so an interrupted run starts again.
    """
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        write(unfinished)
        unfinished.rename(folder)
    return folder


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
    """Return a model of the sizes of a test's checkpoint, for CPUs.

    A benchmark runs the code paths of the published sizes with it, but its figures are meaningless.
    `folder` is for the tokenizer's files.
    """
    model, codec = (
        json.loads((_TINY / part / "config.json").read_text()) for part in ("", CODEC_FOLDER)
    )
    return RandomModel("tiny", model, codec, folder / "tiny-tokenizer")
