"""The code predictor: the talker's hidden state and codebook 0 become the frame's other codes.

It reads sixteen positions a frame: the talker's hidden state, then each code but the last. Its
memory starts afresh with every frame. Knows no text and no requests; the caller chooses codes.

Source: qwen-tts 0.1.1, `Qwen3TTSTalkerCodePredictorModelForConditionalGeneration`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from voiceagent_tts.model.config import TalkerConfig
from voiceagent_tts.model.layers import (
    Keys,
    Linear,
    Operations,
    Pages,
    Rotation,
    Transformer,
    Weights,
    inverse_frequencies,
    rotation,
)

Choose = Callable[[Tensor, int], Tensor]
"""Logits [B, V] and the number of their codebook -> codes [B] int64."""


def predictor_dtype(dtype: torch.dtype) -> torch.dtype:
    """The precision of the code predictor beside a talker's.

    Beside a float16 talker it is float32: its activations overflow float16.
    """
    return torch.float32 if dtype == torch.float16 else dtype


@dataclass(frozen=True, slots=True)
class FrameBuffers:
    """Keys and values of a frame's positions, written in place.

    Attributes:
        keys: [L, B, K, Hkv, D]; as pages, each row has the one of its number.
        values: [L, B, K, Hkv, D].
        table: [B, 1] int64, these numbers.
        positions: [1, K] int64, 0 and up.
    """

    keys: Tensor
    values: Tensor
    table: Tensor
    positions: Tensor

    @classmethod
    def of(cls, keys: Tensor, values: Tensor) -> "FrameBuffers":
        """A cache in this memory."""
        rows, positions = (torch.arange(size, device=keys.device) for size in keys.shape[1:3])
        return cls(keys, values, rows[:, None], positions[None])

    def first(self, rows: int) -> "FrameBuffers":
        """The part of so many rows."""
        keys, values, table = self.keys[:, :rows], self.values[:, :rows], self.table[:rows]
        return FrameBuffers(keys, values, table, self.positions)


class FrameKVCache:
    """The cache during one pass: positions `place` of the frame, the same for every row."""

    def __init__(self, cache: FrameBuffers, place: slice) -> None:
        self._cache, self._place = cache, place

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> Keys:
        """Remember the pass's keys and values; return the frame so far."""
        of_keys, of_values = self._cache.keys[layer], self._cache.values[layer]
        of_keys[:, self._place] = keys
        of_values[:, self._place] = values
        end = self._place.stop
        return Keys(of_keys[:, :end], of_values[:, :end], lengths=end)

    def pages(self, layer: int) -> Pages:
        """Each row's frame as a page."""
        cache = self._cache
        positions = cache.positions[:, self._place].expand(len(cache.table), -1)
        return Pages(cache.keys[layer], cache.values[layer], cache.table, positions)


class CodePredictor(nn.Module):
    """Weights of the code predictor and the run that completes a frame.

    Args:
        config: the talker's; sizes are those of its `code_predictor_config`.
        operations: that layers are made of beside their matrices.
    """

    def __init__(self, config: TalkerConfig, operations: Operations) -> None:
        super().__init__()
        self.config = config.code_predictor_config
        books = self.config.num_code_groups - 1
        codes, width = self.config.vocab_size, self.config.hidden_size
        self.embeddings = nn.Parameter(
            torch.empty(books, codes, config.hidden_size), requires_grad=False
        )
        self.heads = nn.ModuleList([Linear(width, codes) for _ in range(books)])
        self.projection = (
            Linear(config.hidden_size, width, bias=True) if config.hidden_size != width else None
        )
        self.transformer = Transformer(self.config, operations)
        positions = torch.arange(self.config.num_code_groups)[None]
        frequencies = inverse_frequencies(self.config.head_dim, self.config.rope_theta)
        rotated = rotation(positions, frequencies, self.embeddings.dtype)
        self.cos, self.sin = nn.Buffer(rotated.cos), nn.Buffer(rotated.sin)
        self._inputs: list[Tensor] = []

    def fold(self, codec_embedding: Tensor) -> None:
        """Project every code's embedding once, so that a frame does not; after loading.

        Args:
            codec_embedding: the talker's, whose first rows are the codes of codebook 0.
        """
        tables = (codec_embedding[: self.config.vocab_size], *self.embeddings[:-1])
        self._inputs = [self._project(table.to(self.embeddings)) for table in tables]

    def new_cache(self, rows: int) -> FrameBuffers:
        """The memory that `predict` needs for so many rows."""
        config = self.config
        heads = (config.num_key_value_heads, config.head_dim)
        shape = (config.num_hidden_layers, rows, config.num_code_groups, *heads)
        return FrameBuffers.of(self.embeddings.new_zeros(shape), self.embeddings.new_zeros(shape))

    def embed(self, codes: Tensor) -> Tensor:
        """Codes of codebooks 1 and up [..., K - 1] -> [..., K - 1, talker hidden]."""
        books = torch.arange(codes.shape[-1], device=codes.device)
        return F.embedding(codes + books * self.config.vocab_size, self.embeddings.flatten(0, 1))

    def complete_frame(
        self, hidden: Tensor, first: Tensor, cache: FrameBuffers, choose: Choose
    ) -> Tensor:
        """Complete the frame of every row.

        Args:
            hidden: [B, talker hidden], the talker's state from which `first` was chosen, in any
                precision.
            first: [B] int64, codebook 0.
            cache: of B rows; written in place, nothing in it outlives the call.
            choose: what picks a code from its logits.

        Returns:
            [B, K] int64, codebook 0 first.
        """
        codes = [first]
        hidden = self._project(hidden.to(self.embeddings))
        x = torch.stack((hidden, self._inputs[0][first]), dim=1)
        start = 0
        for book, head in enumerate(self.heads, start=1):
            state = self._run(x, start, cache)
            codes.append(choose(head(state), book))
            start += x.shape[1]
            if book < len(self.heads):
                x = self._inputs[book][codes[-1]][:, None]
        return torch.stack(codes, dim=1)

    def _run(self, x: Tensor, start: int, cache: FrameBuffers) -> Tensor:
        place = slice(start, start + x.shape[1])
        rotated = Rotation(self.cos[:, place], self.sin[:, place])
        return self.transformer(x, rotated, FrameKVCache(cache, place))[:, -1]

    def _project(self, x: Tensor) -> Tensor:
        return x if self.projection is None else self.projection(x)

    def weights(self) -> Weights:
        """This module's tensors under the checkpoint's names."""
        name = "talker.code_predictor"
        for book, (embedding, head) in enumerate(zip(self.embeddings, self.heads, strict=True)):
            yield f"{name}.model.codec_embedding.{book}.weight", embedding
            yield from head.weights(f"{name}.lm_head.{book}")  # type: ignore[operator]
        if self.projection is not None:
            yield from self.projection.weights(f"{name}.small_to_mtp_projection")
        yield from self.transformer.weights(f"{name}.model")
