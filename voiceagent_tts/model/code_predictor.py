"""The code predictor: from the talker's hidden state and codebook 0 to the frame's other codes.

It reads sixteen positions per frame: the talker's hidden state, then each code but the last. Its KV
cache starts empty with every frame. The caller samples the codes.

Source: qwen-tts 0.1.1, `Qwen3TTSTalkerCodePredictorModelForConditionalGeneration`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from voiceagent_tts.model.attention import Keys, Pages
from voiceagent_tts.model.config import TalkerConfig
from voiceagent_tts.model.layers import (
    Linear,
    Operations,
    Rotation,
    Transformer,
    Weights,
    inverse_frequencies,
    rotation,
)

SampleCode = Callable[[Tensor, int], Tensor]
"""Function from logits [B, V] and the number of their codebook to codes [B] int64."""


def predictor_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the precision of the code predictor for a talker's precision.

    float32 for a float16 talker: the activations of the code predictor overflow float16.
    """
    return torch.float32 if dtype == torch.float16 else dtype


@dataclass(frozen=True, slots=True)
class FrameBuffers:
    """Keys and values of the positions of one frame, written in place.

    Attributes:
        keys: [L, B, K, Hkv, D]. As paged memory, row number b has page number b.
        values: [L, B, K, Hkv, D].
        table: [B, 1] int64, block table: the row numbers.
        positions: [1, K] int64, 0 to K - 1.
    """

    keys: Tensor
    values: Tensor
    table: Tensor
    positions: Tensor

    @classmethod
    def of(cls, keys: Tensor, values: Tensor) -> "FrameBuffers":
        """Use existing tensors as buffers."""
        rows, positions = (torch.arange(size, device=keys.device) for size in keys.shape[1:3])
        return cls(keys, values, rows[:, None], positions[None])

    def first(self, rows: int) -> "FrameBuffers":
        """Return the buffers of the first `rows` rows."""
        keys, values, table = self.keys[:, :rows], self.values[:, :rows], self.table[:rows]
        return FrameBuffers(keys, values, table, self.positions)


class FrameKVCache:
    """`KVCache` of one pass over positions `place` of a frame, equal for every row."""

    def __init__(self, buffers: FrameBuffers, place: slice) -> None:
        self._buffers, self._place = buffers, place

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> Keys:
        """Store the pass's keys and values; return those of the frame up to now."""
        layer_keys, layer_values = self._buffers.keys[layer], self._buffers.values[layer]
        layer_keys[:, self._place] = keys
        layer_values[:, self._place] = values
        end = self._place.stop
        return Keys(layer_keys[:, :end], layer_values[:, :end], lengths=end)

    def pages(self, layer: int) -> Pages:
        """Return the frame of each row as one page."""
        buffers = self._buffers
        positions = buffers.positions[:, self._place].expand(len(buffers.table), -1)
        return Pages(buffers.keys[layer], buffers.values[layer], buffers.table, positions)


class CodePredictor(nn.Module):
    """The code predictor network."""

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
        self._operations = operations
        positions = torch.arange(self.config.num_code_groups)[None]
        frequencies = inverse_frequencies(self.config.head_dim, self.config.rope_theta)
        rotated = rotation(positions, frequencies, self.embeddings.dtype)
        self.cos, self.sin = nn.Buffer(rotated.cos), nn.Buffer(rotated.sin)
        self._inputs: list[Tensor] = []

    def fold(self, codec_embedding: Tensor) -> None:
        """Project the embedding of every code once after loading, so no frame has to.

        The first rows of the talker's `codec_embedding` are the codes of codebook 0.
        """
        tables = (codec_embedding[: self.config.vocab_size], *self.embeddings[:-1])
        self._inputs = [self._project(table.to(self.embeddings)) for table in tables]

    def new_buffers(self, rows: int) -> FrameBuffers:
        """Return the buffers that `complete_frame` needs for `rows` rows."""
        config = self.config
        heads = (config.num_key_value_heads, config.head_dim)
        shape = (config.num_hidden_layers, rows, config.num_code_groups, *heads)
        return FrameBuffers.of(self.embeddings.new_zeros(shape), self.embeddings.new_zeros(shape))

    def embed(self, codes: Tensor) -> Tensor:
        """Embed codes of codebooks 1 and up: [..., K - 1] -> [..., K - 1, talker hidden]."""
        books = torch.arange(codes.shape[-1], device=codes.device)
        return F.embedding(codes + books * self.config.vocab_size, self.embeddings.flatten(0, 1))

    def complete_frame(
        self, hidden: Tensor, first: Tensor, buffers: FrameBuffers, sample: SampleCode
    ) -> Tensor:
        """Complete the frame of every row: [B, K] int64, codebook 0 first.

        hidden: [B, talker hidden] in any precision, the talker's state from which `first` ([B]
        int64, codebook 0) was sampled. The `buffers` of B rows are overwritten; nothing is read
        from an earlier call.
        """
        codes = [first]
        hidden = self._project(hidden.to(self.embeddings))
        x = torch.stack((hidden, self._inputs[0][first]), dim=1)
        start = 0
        for book, head in enumerate(self.heads, start=1):
            state = self._run(x, start, buffers)
            codes.append(sample(self._operations.product(state, head), book))  # type: ignore[arg-type]
            start += x.shape[1]
            if book < len(self.heads):
                x = self._inputs[book][codes[-1]][:, None]
        return torch.stack(codes, dim=1)

    def _run(self, x: Tensor, start: int, buffers: FrameBuffers) -> Tensor:
        place = slice(start, start + x.shape[1])
        rotated = Rotation(self.cos[:, place], self.sin[:, place])
        return self.transformer(x, rotated, FrameKVCache(buffers, place))[:, -1]

    def _project(self, x: Tensor) -> Tensor:
        return x if self.projection is None else self.projection(x)

    def weights(self) -> Weights:
        """Yield this module's tensors under the checkpoint's names."""
        name = "talker.code_predictor"
        for book, (embedding, head) in enumerate(zip(self.embeddings, self.heads, strict=True)):
            yield f"{name}.model.codec_embedding.{book}.weight", embedding
            yield from head.weights(f"{name}.lm_head.{book}")  # type: ignore[operator]
        if self.projection is not None:
            yield from self.projection.weights(f"{name}.small_to_mtp_projection")
        yield from self.transformer.weights(f"{name}.model")
