"""Files of a checkpoint become modules, without a second copy in memory.

safetensors files are mapped and read tensor by tensor into the modules, converted on the way; pages
that were read are let go. Every tensor that a module needs must be there in its shape; what is
missing, of another shape, cut short or of another kind is refused with the name of the file and
the key.

Source: the safetensors format; tensor names of the published Qwen3-TTS-12Hz models.
"""

import json
import math
import mmap
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from voiceagent_tts.errors import CheckpointError, ErrorCode, InvalidRequestError
from voiceagent_tts.model.attention import AttentionBackend, make_attention
from voiceagent_tts.model.code_predictor import CodePredictor, predictor_dtype
from voiceagent_tts.model.config import (
    GenerationConfig,
    ModelConfig,
    read_generation_config,
    read_model_config,
)
from voiceagent_tts.model.kernels import make_operations
from voiceagent_tts.model.layers import Kernels, Weights
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.packed import pack
from voiceagent_tts.model.speaker_encoder import SpeakerEncoder
from voiceagent_tts.model.talker import Talker
from voiceagent_tts.model.tokenizer import Tokenizer

_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_CHUNK_BYTES = 16 * 2**20
_MAX_HEADER_BYTES = 100 * 2**20


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies in its file."""

    file: "WeightFile"
    key: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    def read_into(self, target: Tensor) -> None:
        """Copy into `target`, converting to its precision and place.

        Raises:
            CheckpointError: another shape, or a type that is no floating point number.
        """
        if tuple(target.shape) != self.shape:
            raise CheckpointError(
                f"{self.file.path}: {self.key}: shape is {list(self.shape)}, "
                f"expected {list(target.shape)}"
            )
        if self.dtype not in _DTYPES:
            raise CheckpointError(
                f"{self.file.path}: {self.key}: type is {self.dtype}, expected one of "
                f"{', '.join(_DTYPES)}"
            )
        self.file.copy(self, target)


class WeightFile:
    """One safetensors file, mapped.

    The library maps a whole file and keeps every page that was touched: beside the converted copy
    that is more memory than a machine chosen for the model may have. Here pages are let go.

    Args:
        path: of the file.

    Raises:
        CheckpointError: no such file, or not a complete safetensors file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path}: expected a safetensors file; {error}") from error
        self._data_start, header = self._header()
        self.tensors = {
            key: self._stored(key, entry) for key, entry in header.items() if key != "__metadata__"
        }

    def _header(self) -> tuple[int, dict[str, dict]]:
        length = int.from_bytes(self._map[:8], "little")
        if length > min(len(self._map) - 8, _MAX_HEADER_BYTES):
            raise CheckpointError(f"{self.path}: is not a complete safetensors file")
        try:
            return 8 + length, json.loads(self._map[8 : 8 + length])
        except ValueError as error:
            raise CheckpointError(f"{self.path}: is not a safetensors file; {error}") from error

    def _stored(self, key: str, entry: dict) -> StoredTensor:
        try:
            start, end = (self._data_start + offset for offset in entry["data_offsets"])
            stored = StoredTensor(self, key, entry["dtype"], tuple(entry["shape"]), start, end)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{self.path}: {key}: is not a safetensors entry") from error
        if not 0 <= start <= end <= len(self._map):
            raise CheckpointError(
                f"{self.path}: {key}: ends at byte {end} of {len(self._map)}; "
                "the download is not complete"
            )
        dtype = _DTYPES.get(stored.dtype)
        if dtype and math.prod(stored.shape) * dtype.itemsize != end - start:
            raise CheckpointError(f"{self.path}: {key}: has not the bytes of its shape")
        return stored

    def copy(self, stored: StoredTensor, target: Tensor) -> None:
        """Copy a tensor of this file into `target`, of the same shape, a part at a time."""
        dtype = _DTYPES[stored.dtype]
        flat = target.detach().view(-1)
        per_chunk = _CHUNK_BYTES // dtype.itemsize
        for first in range(0, flat.numel(), per_chunk):
            part = flat[first : first + per_chunk]
            offset = stored.start + first * dtype.itemsize
            part.copy_(torch.frombuffer(self._map, dtype=dtype, count=len(part), offset=offset))
            self._let_go(offset, len(part) * dtype.itemsize)

    def _let_go(self, offset: int, length: int) -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            page = offset // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, page, offset + length - page)


def open_weights(folder: Path) -> dict[str, StoredTensor]:
    """All tensors of a folder's model.safetensors, or of the shards that its index lists.

    Raises:
        CheckpointError: no such file, or a file that is not complete.
    """
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return WeightFile(folder / "model.safetensors").tensors
    try:
        shards = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index}: expected weight_map; {error}") from error
    tensors: dict[str, StoredTensor] = {}
    for shard in shards:
        tensors |= WeightFile(folder / shard).tensors
    return tensors


def fill(weights: Weights, stored: Mapping[str, StoredTensor], folder: Path) -> None:
    """Read a module's tensors.

    Args:
        weights: names in the checkpoint and the tensors, or parts of tensors, to be filled.
        stored: what the files hold.
        folder: of the files, for messages.

    Raises:
        CheckpointError: a tensor is missing or has another shape or type.
    """
    for key, target in weights:
        if key not in stored:
            raise CheckpointError(f"{folder}: {key}: is not in the safetensors files")
        stored[key].read_into(target)


def find_device(name: str | None) -> torch.device:
    """The device that a user calls `cpu`, `cuda` or `cuda:1`; None for a GPU where there is one.

    Raises:
        InvalidRequestError: it is called otherwise, or is not here.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = re.fullmatch(r"cpu|cuda(?::(\d+))?", name)
    if found is None:
        raise InvalidRequestError(
            f"device: expected cpu, cuda or cuda:N; got {name!r}", code=ErrorCode.INVALID_PARAM
        )
    if name != "cpu" and int(found[1] or 0) >= torch.cuda.device_count():
        raise InvalidRequestError(
            f"device: there is no {name} here that PyTorch could use; "
            "`voiceagent-tts doctor --gpu` says why",
            code=ErrorCode.INVALID_PARAM,
        )
    return torch.device(name)


@contextmanager
def building(dtype: torch.dtype, device: torch.device) -> Iterator[None]:
    """New floating point tensors have `dtype`, and all new tensors are on `device`."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def build_network(
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    backend: AttentionBackend,
    kernels: Kernels = "plain",
) -> Network:
    """The modules of a model, with weights still to be filled; arguments as `load_checkpoint`'s."""
    operations = make_operations(kernels, make_attention(backend, dtype))
    with building(dtype, device):
        talker = Talker(config.talker_config, operations)
    of_predictor = predictor_dtype(dtype)
    if of_predictor != dtype:
        backend = "sdpa"
    operations = make_operations(kernels, make_attention(backend, of_predictor))
    with building(of_predictor, device):
        code_predictor = CodePredictor(config.talker_config, operations)
    return Network(config, talker, code_predictor, kernels)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded model; its codec is loaded apart."""

    config: ModelConfig
    generation: GenerationConfig
    tokenizer: Tokenizer
    network: Network
    speaker_encoder: SpeakerEncoder | None
    """Of Base models."""


def load_checkpoint(
    folder: Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    backend: AttentionBackend = "sdpa",
    *,
    kernels: Kernels = "plain",
    is_packed: bool = True,
) -> Checkpoint:
    """Load a model from its folder.

    Args:
        folder: as published, or as fine-tuning leaves it.
        dtype: precision of the weights.
        device: where they go.
        backend: how attention is computed, where no fused kernel does it.
        kernels: of all that lies between matrices; fused ones only where they can be used.
        is_packed: on a CPU, whether weights are laid out for its vector unit. They compute the
            same without, up to rounding.

    Raises:
        CheckpointError: a file is missing, partial or of a kind that this network can not compute.
        ValueError: `backend` does not go with `dtype` or is not installed.
    """
    config = read_model_config(folder)
    network = build_network(config, dtype, torch.device(device), backend, kernels)
    stored = open_weights(folder)
    fill(network.weights(), stored, folder)
    network.code_predictor.fold(network.talker.codec_embedding)
    if is_packed:
        pack(network)
    speaker_encoder = None
    if config.has_speaker_encoder:
        with building(torch.float32, torch.device(device)):
            speaker_encoder = SpeakerEncoder(config.speaker_encoder_config)
        fill(speaker_encoder.weights(), stored, folder)
    return Checkpoint(
        config,
        read_generation_config(folder),
        Tokenizer(folder, config.im_start_token_id, config.im_end_token_id),
        network,
        speaker_encoder,
    )
