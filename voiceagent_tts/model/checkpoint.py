"""Load a checkpoint's files into modules, without a second copy in memory.

safetensors files are mapped, and each tensor is copied into its module and converted on the way;
pages that were read are released. Every tensor that a module needs must exist in the right shape. A
tensor that is missing, truncated, or of another shape or type is an error that names the file and
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
from voiceagent_tts.model.products import pack
from voiceagent_tts.model.talker import Talker
from voiceagent_tts.model.tokenizer import Tokenizer

_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_CHUNK_BYTES = 16 * 2**20
_MAX_HEADER_BYTES = 100 * 2**20


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a safetensors file that is mapped into memory: its bytes from `start` to `end`.

    The safetensors library keeps every page that it has read. Together with the converted copy that
    can exceed the memory of a machine sized for the model, so this class releases pages.
    """

    path: Path
    content: mmap.mmap
    key: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    def read_into(self, target: Tensor) -> None:
        """Copy in chunks into `target`, converting to its precision and device.

        Raises:
            CheckpointError: the shape differs, or the type is not a floating-point type.
        """
        if tuple(target.shape) != self.shape:
            raise CheckpointError(
                f"{self.path}: {self.key}: shape is {list(self.shape)}, "
                f"expected {list(target.shape)}"
            )
        dtype = _DTYPES.get(self.dtype)
        if dtype is None:
            raise CheckpointError(
                f"{self.path}: {self.key}: type is {self.dtype}, expected one of "
                f"{', '.join(_DTYPES)}"
            )
        flat = target.detach().view(-1)
        per_chunk = _CHUNK_BYTES // dtype.itemsize
        for first in range(0, flat.numel(), per_chunk):
            part = flat[first : first + per_chunk]
            offset = self.start + first * dtype.itemsize
            part.copy_(torch.frombuffer(self.content, dtype=dtype, count=len(part), offset=offset))
            self._release(offset, len(part) * dtype.itemsize)

    def _release(self, offset: int, length: int) -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            page = offset // mmap.PAGESIZE * mmap.PAGESIZE
            self.content.madvise(mmap.MADV_DONTNEED, page, offset + length - page)


def _open_file(path: Path) -> dict[str, StoredTensor]:
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: expected a safetensors file; {error}") from error
    length = int.from_bytes(content[:8], "little")
    if length > min(len(content) - 8, _MAX_HEADER_BYTES):
        raise CheckpointError(f"{path}: is not a complete safetensors file; download it again")
    try:
        header: dict[str, dict] = json.loads(content[8 : 8 + length])
    except ValueError as error:
        raise CheckpointError(f"{path}: is not a safetensors file; {error}") from error
    header.pop("__metadata__", None)
    return {key: _stored(path, content, key, entry, 8 + length) for key, entry in header.items()}


def _stored(path: Path, content: mmap.mmap, key: str, entry: dict, data: int) -> StoredTensor:
    try:
        start, end = (data + offset for offset in entry["data_offsets"])
        stored = StoredTensor(path, content, key, entry["dtype"], tuple(entry["shape"]), start, end)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {key}: is not a safetensors entry") from error
    if not 0 <= start <= end <= len(content):
        raise CheckpointError(
            f"{path}: {key}: ends at byte {end} of {len(content)}; the download is not complete"
        )
    dtype = _DTYPES.get(stored.dtype)
    if dtype and math.prod(stored.shape) * dtype.itemsize != end - start:
        raise CheckpointError(f"{path}: {key}: its size does not match its shape")
    return stored


def open_weights(folder: Path) -> dict[str, StoredTensor]:
    """Open the tensors of model.safetensors, or of the shards that the index lists.

    Raises:
        CheckpointError: a file is missing or incomplete.
    """
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return _open_file(folder / "model.safetensors")
    try:
        shards = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index}: expected weight_map; {error}") from error
    tensors: dict[str, StoredTensor] = {}
    for shard in shards:
        tensors |= _open_file(folder / shard)
    return tensors


def fill(weights: Weights, stored: Mapping[str, StoredTensor], folder: Path) -> None:
    """Read a module's tensors, or parts of tensors, by their names in the checkpoint.

    Raises:
        CheckpointError: a tensor is missing or has another shape or type.
    """
    for key, target in weights:
        if key not in stored:
            raise CheckpointError(f"{folder}: {key}: is not in the safetensors files")
        stored[key].read_into(target)


def find_device(name: str | None) -> torch.device:
    """Parse `cpu`, `cuda` or `cuda:1`; None selects the GPU if there is one.

    Raises:
        InvalidRequestError: the name is invalid, or the machine has no such device.
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
            f"device: expected a device that PyTorch can use, got {name}; "
            "`voiceagent-tts doctor` reports the reason",
            code=ErrorCode.INVALID_PARAM,
        )
    return torch.device(name)


@contextmanager
def building(dtype: torch.dtype, device: torch.device) -> Iterator[None]:
    """Create floating-point tensors with `dtype`, and all tensors on `device`, in this block."""
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
    """Build a model's modules with uninitialised weights; arguments as in `load_checkpoint`."""
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
    """A loaded model without its codec, and without what makes voices of recordings."""

    config: ModelConfig
    generation: GenerationConfig
    tokenizer: Tokenizer
    network: Network
    revision: str = ""
    """Identifies the weights and their precision; empty where it is not needed."""


def load_checkpoint(
    folder: Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    backend: AttentionBackend = "sdpa",
    *,
    kernels: Kernels = "plain",
    is_packed: bool = True,
) -> Checkpoint:
    """Load a published or fine-tuned model from its folder.

    Its `kernels` are `fused` only if `find_fault` returns None. With `is_packed`, weights on a CPU
    are rearranged for its vector unit. Results differ by rounding only.

    Raises:
        CheckpointError: a file is missing, incomplete, or not supported by this network.
        ValueError: `backend` does not support `dtype` or is not installed.
    """
    config = read_model_config(folder)
    network = build_network(config, dtype, torch.device(device), backend, kernels)
    fill(network.weights(), open_weights(folder), folder)
    network.code_predictor.fold(network.talker.codec_embedding)
    if is_packed:
        pack(network)
    return Checkpoint(
        config,
        read_generation_config(folder),
        Tokenizer(folder, config.im_start_token_id, config.im_end_token_id),
        network,
    )
