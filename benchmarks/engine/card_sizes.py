"""How many rows of a model fit a card: the engine's own plan of memory, without a card.

The model is built, and its largest passes run, on PyTorch's device without memory (`meta`), where
the bytes of tensors are counted. Times are not predicted: many rows that fit may be too slow.
"""

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from voiceagent_tts.engine.gpu_memory import CONTEXT_BYTES, Memory, measure_needs, share_of_free
from voiceagent_tts.engine.kv_cache import MemoryNeeds, rows_that_fit
from voiceagent_tts.engine.make_runner import PREFIX_SHARE
from voiceagent_tts.engine.sizes import graph_sizes
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.model.attention import KVCache, attend_sdpa
from voiceagent_tts.model.checkpoint import Checkpoint, building
from voiceagent_tts.model.code_predictor import CodePredictor, predictor_dtype
from voiceagent_tts.model.codec import Codec
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.config import CodecConfig, GenerationConfig, ModelConfig
from voiceagent_tts.model.kv_pool import PAGE_POSITIONS
from voiceagent_tts.model.layers import HeadNorm, PlainOperations, Rotation
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.talker import Talker
from voiceagent_tts.plugins.checks.random_weights import PUBLISHED, PUBLISHED_CODEC

CARDS_GB = (8, 12, 16, 24, 40, 48, 80, 141)
"""Memory of cards in 10^9 bytes, as they are sold; most have a little more."""
CAPACITY = 4096
_META = torch.device("meta")
_FRAMES_A_MINUTE = 750


@dataclass(frozen=True, slots=True)
class Fit:
    """What of a model fits a card.

    Attributes:
        rows: contexts at the same time, as the engine chooses them; 0 if the model does not fit.
        minutes: speech that all of them together can have in memory.
    """

    rows: int
    minutes: float


class CountedMemory(TorchDispatchMode):
    """Memory of tensors that are made while this mode is entered; see `Memory`."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes: dict[int, int] = {}
        self._now = self._most = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._bytes:
            self._bytes[key] = storage.nbytes()
            self._now += storage.nbytes()
            self._most = max(self._most, self._now)
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self._now -= self._bytes.pop(key)

    def allocated(self) -> int:
        """See `Memory`."""
        return self._now

    def peak(self, run: Callable[[], None]) -> int:
        """See `Memory`."""
        before = self._most = self._now
        run()
        return self._most - before

    def release(self) -> None:
        """See `Memory`: what only refers to itself is counted until it is collected."""
        gc.collect()


class _FusedMemory(PlainOperations):
    """Operations that allocate what fused kernels do: attention reads pages in place."""

    def attend(
        self, heads: Tensor, norm: HeadNorm, rotated: Rotation, cache: KVCache, layer: int
    ) -> Tensor:
        """See `Operations`."""
        return torch.empty_like(heads[:, :, : norm.queries])


def fits(model: ModelConfig, dtype: torch.dtype) -> Iterator[Fit]:
    """Yield what of a model with fused kernels fits each of `CARDS_GB`."""
    with CountedMemory() as memory:
        checkpoint, codec = _unfilled(model, dtype)
        weights = memory.allocated()

        @cache
        def needs_without_voices(rows: int) -> MemoryNeeds:
            sizes = graph_sizes(rows, CAPACITY, has_windows=False)
            return measure_needs(
                cast("Memory", memory), checkpoint, codec, rows, CAPACITY, sizes, 0, has_graphs=True
            )

        for gigabytes in CARDS_GB:
            free = gigabytes * 10**9 - CONTEXT_BYTES - weights
            yield _fit(share_of_free(max(free, 0), weights), needs_without_voices)


def _fit(budget: int, needs_without_voices: Callable[[int], MemoryNeeds]) -> Fit:
    def needs_of(rows: int) -> MemoryNeeds:
        needs = needs_without_voices(rows)
        return replace(needs, voices=needs.voices + int(PREFIX_SHARE * budget))

    try:
        rows, needs = rows_that_fit(needs_of, budget)
        pages = needs.pages_in(budget, rows)
    except VoiceAgentError:
        return Fit(0, 0.0)
    return Fit(rows, pages * PAGE_POSITIONS / _FRAMES_A_MINUTE)


def _unfilled(model: ModelConfig, dtype: torch.dtype) -> tuple[Checkpoint, Codec]:
    """Build a model and its codec without memory."""
    operations = _FusedMemory(attend_sdpa)
    with building(dtype, _META):
        talker = Talker(model.talker_config, operations)
    with building(predictor_dtype(dtype), _META):
        predictor = CodePredictor(model.talker_config, operations)
    predictor.fold(talker.codec_embedding)
    with building(torch.float32, _META):
        decoder = CodecDecoder(PUBLISHED_CODEC)
    config = CodecConfig(
        model_type="qwen3_tts_tokenizer_12hz", decoder_config=PUBLISHED_CODEC, encoder_config={}
    )
    network = Network(model, talker, predictor, "plain")
    no_tokenizer = cast("Any", None)
    checkpoint = Checkpoint(model, GenerationConfig(), no_tokenizer, network, None)
    return checkpoint, Codec(config, decoder, None)


def small_model() -> ModelConfig:
    """Return the published sizes of 0.6B."""
    talker = replace(PUBLISHED.talker_config, hidden_size=1024, intermediate_size=3072)
    return replace(PUBLISHED, tts_model_size="0b6", talker_config=talker)


def main() -> None:
    """Print how many rows of each published model the engine's plan gives cards of common sizes."""
    grid = Table("GB of the card", title="Rows, and minutes of speech in memory of all together")
    for gigabytes in CARDS_GB:
        grid.add_column(str(gigabytes), justify="right")
    for name, model in (("0.6B", small_model()), ("1.7B", PUBLISHED)):
        for precision in ("bfloat16", "float32"):
            cells = fits(model, getattr(torch, precision))
            grid.add_row(
                f"{name}, {precision}",
                *(f"{one.rows}, {one.minutes:.0f}" if one.rows else "-" for one in cells),
            )
    Console().print(grid)


if __name__ == "__main__":
    main()
